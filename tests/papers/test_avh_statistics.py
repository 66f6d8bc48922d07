"""Angular Visual Hardness (ICML 2020), section 4: the significance tests of Tables 2 and 6-9, from the printed coefficients."""

from __future__ import annotations

import math

import pytest

from mohs.hardness.agreement import fisher_z, steiger

EXAMPLES = 29987
TABLES = [  # table, coefficient, with AVH, with confidence, the two z, Z, p as printed
    ("2 and 8, ResNet-50", "Spearman", 0.360, 0.325, 0.377, 0.337, 4.85, 1e-5),
    ("2 and 8, ResNet-50", "Pearson", 0.385, 0.341, 0.406, 0.355, 6.2, 1e-5),
    ("2 and 8, ResNet-50", "Kendall", 0.257, 0.231, 0.263, 0.235, 3.38, 0.0003),
    ("6, AlexNet", "Spearman", 0.339, 0.325, 0.352, 0.337, 1.92, 0.027),
    ("6, AlexNet", "Pearson", 0.324, 0.31, 0.336, 0.320, 1.90, 0.028),
    ("6, AlexNet", "Kendall", 0.244, 0.23, 0.249, 0.234, 1.81, 0.035),
    ("7, VGG-19", "Spearman", 0.349, 0.335, 0.364, 0.348, 1.94, 0.026),
    ("7, VGG-19", "Pearson", 0.358, 0.343, 0.374, 0.357, 2.09, 0.018),
    ("7, VGG-19", "Kendall", 0.244, 0.229, 0.249, 0.233, 1.94, 0.026),
    ("9, DenseNet-121", "Pearson", 0.390, 0.347, 0.412, 0.362, 6.09, 1e-5),
    ("9, DenseNet-121", "Kendall", 0.262, 0.234, 0.268, 0.238, 3.65, 0.0001),
]


@pytest.mark.parametrize(("table", "kind", "avh", "confidence", "z_avh", "z_mc", "z", "p"), TABLES)
def test_tables_2_and_6_to_9(
    table: str, kind: str, avh: float, confidence: float, z_avh: float, z_mc: float, z: float, p: float
) -> None:
    test = fisher_z(avh, confidence, EXAMPLES)
    assert (math.atanh(avh), math.atanh(confidence)) == pytest.approx((z_avh, z_mc), abs=1e-3)
    assert test.z == pytest.approx(z, abs=0.01)  # printed to two places, cut and not rounded
    if p <= 1e-5:
        assert test.p < p
    else:
        assert test.p == pytest.approx(p, abs=0.0005 if p > 0.001 else 1e-4)


def test_first_significant_digits_of_table_2() -> None:
    assert [round(fisher_z(*pair, EXAMPLES).z, 2) for pair in ((0.360, 0.325), (0.385, 0.341), (0.257, 0.231))] == [
        4.86,
        6.21,
        3.39,
    ]


def test_table_9_spearman_row_is_a_copy_of_table_2_pearson() -> None:
    printed = (0.4059, 0.355, 6.2)
    corrected = fisher_z(0.367, 0.329, EXAMPLES)
    assert (math.atanh(0.367), math.atanh(0.329)) == pytest.approx((0.385, 0.342), abs=5e-4)
    assert corrected.z == pytest.approx(5.30, abs=0.01)
    assert corrected.p < 1e-5  # so the row's conclusion stands
    copied = (math.atanh(0.385), math.atanh(0.341), fisher_z(0.385, 0.341, EXAMPLES).z)
    assert copied == pytest.approx(printed, abs=0.01)


def test_p_of_section_4_is_smaller_than_printed() -> None:
    assert fisher_z(0.360, 0.325, EXAMPLES).p == pytest.approx(6e-7, rel=0.01)  # "0.00001" in the text


@pytest.mark.parametrize("between", [0.6, 0.9])
def test_a_test_for_dependent_correlations_is_more_powerful(between: float) -> None:
    assert steiger(0.339, 0.325, between, EXAMPLES).p < fisher_z(0.339, 0.325, EXAMPLES).p / 2
