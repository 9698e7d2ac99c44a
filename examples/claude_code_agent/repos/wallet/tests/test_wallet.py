import unittest

from wallet import split


class Split(unittest.TestCase):
    def test_even(self) -> None:
        assert split(100, 4) == [25, 25, 25, 25]

    def test_the_rest_goes_to_the_first(self) -> None:
        assert split(101, 3) == [34, 34, 33]


if __name__ == "__main__":
    unittest.main()
