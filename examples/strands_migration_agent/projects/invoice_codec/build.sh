#!/bin/sh
# Builds with the JDK's own tools, as build.properties says, and runs the tests.
set -e
cd "$(dirname "$0")"
. ./build.properties
path=target/classes
for jar in $libraries; do path="$path:repository/$jar"; done
rm -rf target
mkdir -p target/classes target/test-classes
javac -proc:none --release "$release" -cp "$path" -d target/classes $(find src/main/java -name '*.java')
javac -proc:none --release "$release" -cp "$path" -d target/test-classes $(find src/test/java -name '*.java')
for test in $(cd src/test/java && find . -name '*Test.java' | sed 's|^\./||; s|\.java$||; s|/|.|g'); do
  java -cp "target/test-classes:$path" "$test" < /dev/null
done
