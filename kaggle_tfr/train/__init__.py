"""06: devices, predictions on them, weights of pretrained networks, a submission."""

from kaggle_tfr.train.devices import Devices, find_devices, predict
from kaggle_tfr.train.submission import fill_submission
from kaggle_tfr.train.weights import find_weights
