"""Which worker is meant, and how people are told."""

from pathlib import Path

from headwater.config.project import ConnectSettings
from headwater.services.connect.client import DEFAULT, Address, find_worker

WRITTEN = ConnectSettings(url="http://written:8083")


def test_a_flag_beats_a_variable_and_that_beats_the_file(tmp_path: Path):
    variable = {"HEADWATER_CONNECT_URL": "http://variable:8083"}
    assert find_worker("http://flag:8083", variable, WRITTEN, tmp_path) == Address("http://flag:8083", "--url")
    assert find_worker(None, variable, WRITTEN, tmp_path) == Address("http://variable:8083", "HEADWATER_CONNECT_URL")
    assert find_worker(None, {}, WRITTEN, tmp_path) == Address("http://written:8083", "headwater.yaml")
    assert find_worker(None, {}, ConnectSettings(), tmp_path) == Address(DEFAULT, "the default")


def test_a_setting_that_came_from_its_variable_is_told_so(tmp_path: Path):
    worker = find_worker(None, {"HEADWATER_CONNECT__URL": "http://written:8083"}, WRITTEN, tmp_path)
    assert worker.origin == "HEADWATER_CONNECT__URL"


def test_an_empty_variable_names_no_worker(tmp_path: Path):
    assert find_worker(None, {"HEADWATER_CONNECT_URL": ""}, WRITTEN, tmp_path).url == "http://written:8083"
