package plugins;

import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.Scanner;

/** Registries that nobody saw before, against a list of the reward's own. */
public class HeldOutTest {
    public static void main(String[] args) {
        PrintStream out = System.out; // before code under test could put another there
        Scanner in = new Scanner(System.in);
        String token = in.next();
        Random random = new Random(in.nextLong());
        int passed = 0;
        int total = 0;
        for (int round = 0; round < 20; round++) {
            total += 3;
            try {
                int limit = 1 + random.nextInt(50);
                Settings.setLimit(limit);
                passed += Settings.limit() == limit ? 1 : 0;
                Registry registry = new Registry();
                List<String> expected = new ArrayList<>();
                boolean right = true;
                for (int i = 0; i < 60; i++) {
                    String name = "plugin-" + (char) (200 + random.nextInt(900)) + random.nextInt(40);
                    boolean fits = expected.size() < limit && !expected.contains(name);
                    right &= registry.register(name) == fits;
                    if (fits) {
                        expected.add(name);
                    }
                }
                registry.names().clear();
                passed += right && registry.names().equals(expected) ? 1 : 0;
                passed += registry.fingerprint() == fingerprint(expected) ? 1 : 0;
            } catch (Throwable error) {
                System.err.println("failed: " + error);
            }
        }
        out.println(token + " passed " + passed + " of " + total);
    }

    static int fingerprint(List<String> names) {
        int hash = 17;
        for (String name : names) {
            for (int i = 0; i < name.length(); i++) {
                hash = 31 * hash + name.charAt(i);
            }
            hash = 31 * hash + '/';
        }
        return hash;
    }
}
