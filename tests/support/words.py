"""The numbers that belong to a word in what a run prints and shows."""

import re
from collections import defaultdict

# "8 of 515 images are rejected" is about 8; "75 of 465 records" about 465.
COUNTED = re.compile(
    r"([\d,]+) (?:of [\d,]+ images (?:is|are) )?"
    r"(labelled records|test records|records|rejected)\b"
)


def collect_numbers(text):
    """Return the different numbers of each word, such as {"records": {465}}."""
    numbers = defaultdict(set)
    for number, word in COUNTED.findall(text):
        numbers[word].add(int(number.replace(",", "")))
    return numbers
