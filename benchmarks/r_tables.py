"""Real tables with categories and missing values: those that R packages of Debian ship, as Parquet files.

    python benchmarks/r_tables.py FOLDER      (needs apt-get, dpkg and `pip install rdata`)

Each file of FOLDER is one table with its classes in the last column, `label`. The tables of mlbench (Letter, Satellite, Pima,
votes, ...) are those that people compare methods on: `audit_suite.py` tests on them. The others serve `train_judge.py`.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

TABLES: dict[str, dict[str, str]] = {  # Debian package -> table -> column of the classes
    "mlbench": {
        "BreastCancer": "Class", "DNA": "Class", "Glass": "Type", "HouseVotes84": "Class", "Ionosphere": "Class",
        "LetterRecognition": "lettr", "PimaIndiansDiabetes2": "diabetes", "Satellite": "classes", "Shuttle": "Class",
        "Sonar": "Class", "Soybean": "Class", "Vehicle": "Class", "Vowel": "Class",
    },
    "kernlab": {"income": "INCOME", "musk": "Class", "spam": "type", "ticdata": "CARAVAN"},
    "modeldata": {
        "ad_data": "Class", "attrition": "Attrition", "bivariate_train": "Class", "cells": "class", "credit_data": "Status",
        "hpc_data": "class", "lending_club": "Class", "mlc_churn": "churn", "pd_speech": "class", "penguins": "species",
        "Sacramento": "type", "tate_text": "medium", "stackoverflow": "Remote", "two_class_dat": "Class", "wa_churn": "churn",
    },
    "aer": {
        "BankWages": "job", "CPS1985": "occupation", "CreditCard": "card", "GSOEP9402": "school", "HealthInsurance": "health",
        "HMDA": "deny", "NMES1988": "health", "PSID1976": "participation", "SmokeBan": "smoker", "SwissLabor": "participation",
    },
    "cardata": {
        "Arrests": "released", "BEPS": "vote", "CES11": "abortion", "Chile": "vote", "Cowles": "volunteer", "Greene": "decision",
        "KosteckiDillon": "headache", "MplsStops": "problem", "Salaries": "rank", "SLID": "language",
        "TitanicSurvival": "survived", "UN": "region", "Wells": "switch", "Womenlf": "partic", "WVS": "poverty",
    },
    "dplyr": {"storms": "status"},
    "dslabs": {"gapminder": "continent", "olive": "region", "trump_tweets": "source"},
    "ggplot2": {"diamonds": "cut"},
    "gss": {"Sachs": "grp"},
    "hsaur3": {"CHFLS": "R_happy", "Forbes2000": "category"},
    "ipred": {"dystrophy": "Class", "GlaucomaMVF": "Class"},
    "locfit": {"ais": "sex"},
    "mass": {"Aids2": "status"},
    "mclust": {"banknote": "Status", "chevron": "class", "thyroid": "Diagnosis"},
    "mice": {"boys": "gen", "fdgs": "reg", "selfreport": "src"},
    "psych": {"bfi": "gender"},
    "survival": {"logan": "occupation", "transplant": "event"},
}  # fmt: skip
TEST, TEXTS = "mlbench", ("tate_text", "trump_tweets")
DROPPED = {  # columns that name the row or tell its class
    "BreastCancer": ["Id"], "cells": ["case"], "CreditCard": ["expenditure", "share"], "PSID1976": ["hours", "wage", "repwage"],
    "storms": ["category", "name"], "Forbes2000": ["rank", "name"], "tate_text": ["id", "artist"], "KosteckiDillon": ["id"],
    "MplsStops": ["idNum"], "UN": ["group"], "gapminder": ["country", "region"], "olive": ["area"], "trump_tweets": ["id_str"],
    "Aids2": ["death"], "dystrophy": ["OBS"], "selfreport": ["id"], "fdgs": ["id"],
}  # fmt: skip


def tables(package: str, folder: Path) -> Iterator[tuple[str, Any]]:
    """The data frames of a Debian package of R, by name."""
    import rdata

    subprocess.run(["apt-get", "download", "-qq", f"r-cran-{package}"], cwd=folder, check=True, stderr=subprocess.DEVNULL)
    (deb,) = folder.glob(f"r-cran-{package}_*.deb")
    subprocess.run(["dpkg", "-x", deb, folder / package], check=True)
    for file in (folder / package).glob("usr/lib/R/*library/*/data/*.rda"):
        if file.stem in TABLES[package]:
            yield from rdata.conversion.convert(rdata.parser.parse_file(file)).items()
    for file in (folder / package).glob("usr/lib/R/*library/*/data/Rdata.rdx"):  # all tables in one file, and where each begins
        index = rdata.conversion.convert(rdata.parser.parse_data(_unpacked(file.read_bytes())))["variables"]
        held = file.with_suffix(".rdb").read_bytes()
        for name, (start, size) in index.items():
            if name in TABLES[package]:
                yield name, rdata.conversion.convert(rdata.parser.parse_data(_entry(held[int(start) : int(start) + int(size)])))


def with_label(frame: Any, target: str, dropped: list[str]) -> Any:
    """The columns that people would have, as numbers and words, and the classes as the last one."""
    import pandas as pd

    frame = frame[frame[target].notna()].drop(columns=dropped, errors="ignore")
    label = frame.pop(target).astype(str)
    words = {name: frame[name].astype(object).where(frame[name].notna(), None) for name in frame if not _numeric(frame[name])}
    frame = frame.assign(**{name: [None if one is None else str(one) for one in values] for name, values in words.items()})
    return pd.concat([frame, label.rename("label")], axis=1).reset_index(drop=True)


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for package, wanted in TABLES.items():
            for name, frame in tables(package, Path(scratch)):
                if name not in wanted:
                    continue
                made = with_label(frame, wanted[name], DROPPED.get(name, []))
                made.to_parquet(out / f"{name}.parquet", index=False)
                print(
                    f"{package:10} {name:22} {len(made):6,} rows, {made.shape[1] - 1:3} columns, classes: {made.label.nunique()}"
                )


def _numeric(values: Any) -> bool:
    return np.issubdtype(np.dtype(values.dtype), np.number) if isinstance(values.dtype, np.dtype) else False


def _unpacked(held: bytes) -> bytes:
    """An R file without its compression."""
    return {b"\x1f": gzip, b"\xfd": lzma, b"B": bz2}[held[:1]].decompress(held)


def _entry(held: bytes) -> bytes:
    """One entry of a lazy-load database: its length, a letter for the compression unless it is zlib, the data."""
    (size,), kind = struct.unpack(">I", held[:4]), held[4:5]
    if kind == b"Z":
        chain = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]
        return lzma.decompress(held[5:], format=lzma.FORMAT_RAW, filters=chain)
    found = bz2.decompress(held[5:]) if kind == b"2" else held[5:] if kind == b"0" else zlib.decompress(held[4:])
    assert len(found) == size
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
