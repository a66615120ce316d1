"""The numbers that belong to a word in what a run prints and shows."""

import re
from collections import defaultdict

import pandas as pd

from kaggle_tfr.notebook import read_findings
from support.pages import Elements

# "8 of 515 images are rejected" is about 8; "75 of 465 records" about 465.
COUNTED = re.compile(
    r"([\d,]+) (?:of [\d,]+ images (?:is|are) )?"
    r"(labelled records|test records|records|rejected)\b"
)


def collect_numbers(work, printed):
    """Return the different numbers of each word, such as {"records": {465}}.

    They are those of the findings, report.html and accounting.csv in `work`, and of
    what was printed.
    """
    text = Elements((work / "report.html").read_text()).texts
    findings = read_findings(str(work))
    assert all(finding.text in text for finding in findings)
    texts = [printed, text, *map(str, findings)]
    for row in pd.read_csv(work / "accounting.csv").itertuples():
        texts.append(f"{row.images} {row.outcome}")
    numbers = defaultdict(set)
    for number, word in COUNTED.findall("\n".join(texts)):
        numbers[word].add(int(number.replace(",", "")))
    return dict(numbers)
