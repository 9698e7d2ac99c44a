package report;

import java.util.Map;
import java.util.TreeMap;
import textkit.Packer;

/** Counts words and packs the table for mail. */
public final class Report {
    private final Map<String, Integer> counts = new TreeMap<>();

    public void read(String line) {
        for (String word : line.trim().split("\\s+")) {
            if (!word.isEmpty()) {
                counts.merge(word.toLowerCase(), 1, Integer::sum);
            }
        }
    }

    public String table() {
        StringBuilder text = new StringBuilder();
        for (Map.Entry<String, Integer> entry : counts.entrySet()) {
            text.append(entry.getKey()).append(' ').append(entry.getValue()).append('\n');
        }
        return text.toString();
    }

    public String packed() {
        return Packer.pack(table());
    }
}
