"""A competition on a label or a quantity of images, planned and written."""

from support.chain import draw_pictures, run_values, save_picture

N_TRAIN = 64


def write_competition(folder, measure, header, **values):
    """Write images and their CSVs, and run 01 to 04; return the part.

    The last eight images are the tests; another one is missing.
    measure: returns the label of an image. header: of sample_submission.csv, without
    the ids. values: parameters.
    """
    source = folder / "in"
    rows = ["image_id,label"]
    tests = [f"image_id,{header}"]
    zeros = ",0" * (header.count(",") + 1)
    pictures = draw_pictures(N_TRAIN + 8, 72, 96)
    for number, picture in enumerate(pictures):
        name = f"{number * 7 % len(pictures):03d}.jpg"
        is_train = number < N_TRAIN
        split = "train_images" if is_train else "test_images"
        save_picture(picture, source / split / name, quality=92)
        if is_train:
            rows.append(f"{name},{measure(picture)}")
        else:
            tests.append(f"{name}{zeros}")
    (source / "train.csv").write_text("\n".join(rows))
    submission = "\n".join([*tests, f"lost.jpg{zeros}"])
    (source / "sample_submission.csv").write_text(submission)

    sizes = {"IMAGE_SIZE": 48, "N_FOLDS": 2, "SHARD_IMAGES": 20}
    values |= {"INPUT_DIR": str(source), **sizes}
    run_values(values, str(folder / "work"))
    return folder / "work" / "part-1"
