"""Names of shards and splits: how they are formatted and parsed."""

import re

# Kaggle's name of the file, which work and part folders keep.
SUBMISSION = "sample_submission.csv"
# In WORK_DIR, if it continues parts: their records. The attributes of the table have
# the content of the newest plan.json.
RECORDS = "earlier.parquet"
# Of work folders and the first part of a plan: a row for each input image.
FOLDS_FILE = "folds.csv"
# The column of the groups in OVERRIDES.
OVERRIDE_GROUP = "override_group"
# Test shards are in this folder of a part, so all shards at its top hold labelled
# records.
TEST_FOLDER = "test/"

# Numbers count from 0, `part` from 1; `n` is the number of files that share the other
# fields, `count` the number of records in the file.
SHARD_FIELDS = {"name", "split", "fold", "part", "i", "n", "count"}

# The split of each name that files and folders have for it.
SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "test": "test",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
}

# Or without an ending, such as "train-00000-of-00128".
_SHARD_NAME = re.compile(
    r"(?i)\.tfrec(ord)?s?(-\d+-of-\d+)?(\.gz)?$|(^|/)[^/.]+-\d+-of-\d+$"
)
_SPLIT = re.compile(rf"(?:^|[/_.-])({'|'.join(SPLIT_NAMES)})(?=[/_.\d-])")


def list_fields(template: str) -> list[str]:
    """Return the names of a template's fields, in their order.

    >>> list_fields("{patient}/{id[0]}-{i:02d}.png")
    ['patient', 'id', 'i']
    """
    return re.findall(r"\{(\w*)", template)


def check_template(template: str) -> None:
    """Raise a ValueError unless the template can name every shard of a part.

    It needs {i}, the number of a shard, and can have the fields SHARD_FIELDS only.
    """
    if not {"i"} <= {*list_fields(template)} <= SHARD_FIELDS:
        raise ValueError(
            f"SHARD_NAME '{template}' needs {{i}}, and can have "
            f"{{{'}, {'.join(sorted(SHARD_FIELDS))}}}."
        )


def format_shard_name(template: str, split: str, fold: int, **fields: str | int) -> str:
    """Return the path of a shard below its part folder: test shards are in test/.

    Outside the folds (fold -1) the split's name replaces the fold in a template without
    {split}, and the names of test shards always contain "test".
    fields: values of the template's other fields, such as i and count.

    >>> format_shard_name("df{i:02d}-{count}.tfrec", "train", 0, i=3, count=1427)
    'df03-1427.tfrec'
    >>> format_shard_name("f{fold}-{i}.tfrec", "validation", -1, i=3)
    'validation-3.tfrec'
    >>> format_shard_name("df{i:02d}.tfrec", "test", -1, i=3)
    'test/test-df03.tfrec'
    """
    if fold < 0 and "{split" not in template:
        # {fold}, {fold:02d} or f{fold}: "fvalidation" would not be a word.
        template = re.sub(r"f?\{fold[^{}]*\}", "{split}", template)
    if split == "test" and "{split" not in template:
        # The last name of the template, without its folders.
        template = re.sub(r"([^/]*)$", r"test-\1", template, count=1)
    path = template.format(split=split, fold=fold, **fields)
    return TEST_FOLDER + path.removeprefix(TEST_FOLDER) if split == "test" else path


def is_shard_name(path: str) -> bool:
    """Return whether a file has the name of a TFRecord file.

    Such names end with .tfrec, .tfrecord or .tfrecords, or in a number of shards, such
    as train-00000-of-00128. A shard in GZIP may have .gz at its end.

    >>> is_shard_name("a.tfrec"), is_shard_name("a.tfrecord-00000-of-00001.gz")
    (True, True)
    >>> is_shard_name("a.tfrec.idx")
    False
    """
    return _SHARD_NAME.search(path) is not None


def parse_split(path: str) -> str:
    """Return the split that the path of a shard contains.

    It is a word such as "test", "val" or "training", in any case, after "/", "_", "-",
    "." or nothing, and before one of them or a digit. The last one counts; without any
    it is "train". All files in a folder test/ are test shards.

    >>> parse_split("test_tfrecords/ld_test00-687.tfrec")
    'test'
    >>> parse_split("d-val.tfrecord-00000-of-00001"), parse_split("VAL01-12.tfrec")
    ('validation', 'validation')
    >>> parse_split("test/test-train-000-1.tfrec")
    'test'
    """
    path = path.lower()
    if f"/{TEST_FOLDER}" in f"/{path}":
        return "test"
    # SPLIT_NAMES has the split of each word: "val" is "validation".
    words = ["train", *_SPLIT.findall(path)]
    return SPLIT_NAMES[words[-1]]
