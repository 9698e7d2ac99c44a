"""The ``art`` command."""
