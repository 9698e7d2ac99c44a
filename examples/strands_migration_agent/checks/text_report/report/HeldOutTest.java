package report;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Random;
import java.util.Scanner;
import java.util.SortedMap;
import java.util.TreeMap;

/** Texts that nobody saw before, against a table of the reward's own. */
public class HeldOutTest {
    public static void main(String[] args) {
        PrintStream out = System.out; // before code under test could put another there
        Scanner in = new Scanner(System.in);
        String token = in.next();
        Random random = new Random(in.nextLong());
        int passed = 0;
        int total = 0;
        for (int round = 0; round < 20; round++) {
            total += 2;
            try {
                Report report = new Report();
                SortedMap<String, Integer> counts = new TreeMap<>();
                for (int line = 0; line < 5; line++) {
                    StringBuilder text = new StringBuilder(" ");
                    for (int i = 0; i < 8; i++) {
                        String word = "" + (char) ('a' + random.nextInt(9)) + random.nextInt(3);
                        counts.merge(word, 1, Integer::sum);
                        text.append(random.nextBoolean() ? word : word.toUpperCase()).append("  ");
                    }
                    report.read(text.toString());
                }
                StringBuilder table = new StringBuilder();
                counts.forEach((word, count) -> table.append(word + " " + count + "\n"));
                byte[] bytes = table.toString().getBytes(StandardCharsets.UTF_8);
                passed += report.table().equals(table.toString()) ? 1 : 0;
                passed += report.packed().equals(Base64.getEncoder().encodeToString(bytes)) ? 1 : 0;
            } catch (Throwable error) {
                System.err.println("failed: " + error);
            }
        }
        out.println(token + " passed " + passed + " of " + total);
    }
}
