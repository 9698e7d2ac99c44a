"""Roman numerals."""

VALUES = [("M", 1000), ("D", 500), ("C", 100), ("L", 50), ("X", 10), ("V", 5), ("I", 1)]


def to_roman(number: int) -> str:
    text = ""
    for letter, value in VALUES:
        while number >= value:
            text += letter
            number -= value
    return text
