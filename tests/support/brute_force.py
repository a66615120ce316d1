"""Find pairs of near-duplicates by comparing all images with all others."""

import numpy as np

from kaggle_tfr.images.hashing import BITS_BY_ORIENTATION, FLAT, HASHES, ROTATION_BITS


def find_by_brute_force(hashes, max_bits, rotated_bits=-1):
    """Return [a, b, distance, orientation] of the pairs of `find_pairs`."""
    words = hashes[[*HASHES, *ROTATION_BITS]].to_numpy(np.uint64)
    codes = np.ascontiguousarray(words.astype(">u8")).view(np.uint8)
    firsts = {}
    found = []
    searched = []
    facts = zip(hashes["problem"], hashes["texture"], hashes["digest"], strict=True)
    for row, (problem, texture, digest) in enumerate(facts):
        if problem:
            continue
        key = digest if texture < FLAT else codes[row].tobytes()
        first = firsts.setdefault(key, row)
        if first < row:
            found.append([first, row, 0, 1])
        elif texture >= FLAT:
            searched.append(row)

    searched = np.array(searched, int)
    radii = [max_bits] if rotated_bits < 0 else [max_bits] + [rotated_bits] * 7
    bits = np.unpackbits(codes[searched], axis=1)
    rotated = [
        np.packbits(np.take(bits, chosen, axis=1), axis=1).view(np.uint64)
        for chosen in BITS_BY_ORIENTATION[: len(radii)]
    ]
    plain = np.ascontiguousarray(rotated[0].T)
    for end, b in enumerate(searched.tolist()):
        distances = [
            np.bitwise_count(plain[:, :end] ^ words[end][:, None]).sum(axis=0)
            for words in rotated
        ]
        far = np.greater(distances, np.array(radii)[:, None])
        distances = np.where(far, 999, distances)
        for near in np.flatnonzero(~far.all(axis=0)):
            orientation = distances[:, near].argmin()
            distance = int(distances[orientation, near])
            found.append([int(searched[near]), b, distance, int(orientation) + 1])
    return sorted(found)
