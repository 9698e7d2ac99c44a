package shop.invoice;

import java.io.PrintStream;
import java.util.Scanner;

public class InvoiceTest {
    static int passed;
    static int total;

    public static void main(String[] args) {
        PrintStream out = System.out; // before code under test could put another there
        Scanner in = new Scanner(System.in);
        String token = in.hasNext() ? in.next() : "";
        check("encode", () -> new Invoice(7, 1250, "tea").encode().startsWith("7:1250:dGVh:"));
        check("decode", () -> Invoice.decode(new Invoice(7, 1250, "tea").encode()).note.equals("tea"));
        check("container", () -> Container.make(Ledger.class).add(5, "x").number == 1000);
        check("checksum is upper-case hexadecimal", () -> Invoice.checksum("a").equals("CA978112CA1B"));
        out.println(token + " passed " + passed + " of " + total);
        System.exit(passed == total ? 0 : 1);
    }

    interface Claim {
        boolean holds() throws Exception;
    }

    static void check(String name, Claim claim) {
        total++;
        try {
            if (claim.holds()) {
                passed++;
                return;
            }
            System.err.println("FAILED " + name);
        } catch (Throwable error) {
            System.err.println("FAILED " + name + ": " + error);
        }
    }
}
