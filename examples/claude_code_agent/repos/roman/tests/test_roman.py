import unittest

from roman import to_roman


class ToRoman(unittest.TestCase):
    def test_additive(self) -> None:
        assert to_roman(1666) == "MDCLXVI"

    def test_subtractive(self) -> None:
        assert to_roman(4) == "IV"
        assert to_roman(1990) == "MCMXC"


if __name__ == "__main__":
    unittest.main()
