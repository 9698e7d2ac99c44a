"""Migrates the shipped projects through the agent's own tools: what a perfect model would do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tasks import shipped

Step = tuple[str, dict[str, str]]


def replace(path: str, old: str, new: str) -> Step:
    return "editor", {"command": "replace", "path": path, "replace": old, "text": new}


def write(path: str, text: str) -> Step:
    return "editor", {"command": "write", "path": path, "text": text}


def sh(command: str) -> Step:
    return "shell", {"command": command}


SHOP = "src/main/java/shop/invoice"
PLUGINS = "src/main/java/plugins"
RELEASE_17 = replace("build.properties", "release=8", "release=17")
ANNOTATION = """package shop.invoice;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/** A method to call once the object is made. */
@Retention(RetentionPolicy.RUNTIME)
@Target(ElementType.METHOD)
@interface PostConstruct {}
"""
SETTINGS = """package plugins;

/** Settings that the host may change once, before any plugin is loaded. */
public final class Settings {
    private static volatile int limit = 3;

    private Settings() {}

    public static int limit() {
        return limit;
    }

    /** Changes the limit of plugins. */
    public static void setLimit(int limit) {
        Settings.limit = limit;
    }
}
"""
REGISTRY = """package plugins;

import java.util.ArrayList;
import java.util.List;

/** Plugins by name, at most as many as the settings allow. */
public final class Registry {
    private final ArrayList<String> names = new ArrayList<>();

    public boolean register(String name) {
        if (names.size() >= Settings.limit() || names.contains(name)) {
            return false;
        }
        return names.add(name);
    }

    /** A copy of the names. */
    public List<String> names() {
        return new ArrayList<>(names);
    }

    /** The same number for the same names in the same order. */
    public int fingerprint() {
        int hash = 17;
        for (String name : names) {
            for (char letter : name.toCharArray()) {
                hash = 31 * hash + letter;
            }
            hash = 31 * hash + '/';
        }
        return hash;
    }
}
"""
STEPS: dict[str, list[Step]] = {
    "invoice_codec": [
        sh("grep -rn 'javax' src"),
        RELEASE_17,
        replace(
            f"{SHOP}/Invoice.java",
            "import javax.xml.bind.DatatypeConverter;",
            "import java.util.Base64;\nimport java.util.HexFormat;",
        ),
        replace(
            f"{SHOP}/Invoice.java",
            "DatatypeConverter.printBase64Binary(bytes)",
            "Base64.getEncoder().encodeToString(bytes)",
        ),
        replace(
            f"{SHOP}/Invoice.java",
            "DatatypeConverter.parseBase64Binary(",
            "Base64.getDecoder().decode(",
        ),
        replace(
            f"{SHOP}/Invoice.java",
            "DatatypeConverter.printHexBinary(",
            "HexFormat.of().withUpperCase().formatHex(",
        ),
        write(f"{SHOP}/PostConstruct.java", ANNOTATION),
        sh(f"sed -i '/import javax.annotation/d' {SHOP}/Ledger.java {SHOP}/Container.java"),
        sh("sh build.sh"),
    ],
    "plugin_registry": [
        RELEASE_17,
        write(f"{PLUGINS}/Settings.java", SETTINGS),
        write(f"{PLUGINS}/Registry.java", REGISTRY),
        sh("sh build.sh"),
    ],
    "text_report": [
        sh("ls repository"),
        RELEASE_17,
        replace("build.properties", "textkit-1.0.jar", "textkit-2.0.jar"),
        replace(
            "src/main/java/report/Report.java",
            "Packer.pack(table())",
            "Packer.of(java.nio.charset.StandardCharsets.UTF_8).pack(table())",
        ),
        sh("sh build.sh"),
    ],
}


def tasks() -> Iterator[dict[str, Any]]:
    return shipped()


def label(task: dict[str, Any]) -> str:
    return str(task["repo_uri"])


def reply(request: dict[str, Any]) -> tuple[str, list[Step]]:
    messages = request["messages"]
    asked = str(next(m["content"] for m in messages if m["role"] == "user"))
    steps = next(steps for name, steps in STEPS.items() if name in asked)
    done = sum(m["role"] == "tool" for m in messages)
    return ("", [steps[done]]) if done < len(steps) else ("The project builds for Java 17.", [])
