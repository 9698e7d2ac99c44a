"""What ``urllib`` asks on macOS for the system's proxies."""


def _get_proxies() -> dict[str, str]:
    return {}


def _get_proxy_settings() -> dict[str, str]:
    return {}
