package shop.invoice;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Base64;
import java.util.Random;
import java.util.Scanner;

/** Invoices that nobody saw before, against a codec of the reward's own. */
public class HeldOutTest {
    static int passed;
    static int total;

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out; // before code under test could put another there
        Scanner in = new Scanner(System.in);
        String token = in.next();
        Random random = new Random(in.nextLong());
        Ledger ledger = null;
        long sum = 0;
        try {
            ledger = Container.make(Ledger.class);
        } catch (Throwable error) {
            System.err.println("no container: " + error);
        }
        for (int i = 0; i < 20; i++) {
            String note = note(random);
            int number = random.nextInt(1 << 30);
            long cents = random.nextInt(1 << 30);
            sum += cents;
            total += 3;
            try {
                String line = encode(number, cents, note);
                passed += new Invoice(number, cents, note).encode().equals(line) ? 1 : 0;
                Invoice back = Invoice.decode(line);
                passed += back.note.equals(note) && back.number == number && back.cents == cents ? 1 : 0;
                passed += ledger.add(cents, note).number == 1000 + i && ledger.total() == sum ? 1 : 0;
            } catch (Throwable error) {
                System.err.println("failed: " + error);
            }
        }
        total++;
        try {
            Invoice.decode("1:2:dGVh:000000000000");
        } catch (IllegalArgumentException expected) {
            passed++;
        } catch (Throwable error) {
            System.err.println("failed: " + error);
        }
        out.println(token + " passed " + passed + " of " + total);
    }

    static String note(Random random) {
        StringBuilder text = new StringBuilder();
        for (int i = random.nextInt(40); i >= 0; i--) {
            text.append((char) (32 + random.nextInt(600)));
        }
        return text.toString();
    }

    static String encode(int number, long cents, String note) throws Exception {
        String base64 = Base64.getEncoder().encodeToString(note.getBytes(StandardCharsets.UTF_8));
        String body = number + ":" + cents + ":" + base64;
        StringBuilder hex = new StringBuilder();
        for (byte b : MessageDigest.getInstance("SHA-256").digest(body.getBytes(StandardCharsets.UTF_8))) {
            hex.append(String.format("%02X", b));
        }
        return body + ":" + hex.substring(0, 12);
    }
}
