package shop.invoice;

public class InvoiceTest {
    static int passed;
    static int total;

    public static void main(String[] args) {
        check("encode", () -> new Invoice(7, 1250, "tea").encode().startsWith("7:1250:dGVh:"));
        check("decode", () -> Invoice.decode(new Invoice(7, 1250, "tea").encode()).note.equals("tea"));
        check("container", () -> Container.make(Ledger.class).add(5, "x").number == 1000);
        check("checksum is upper-case hexadecimal", () -> Invoice.checksum("a").equals("CA978112CA1B"));
        System.out.println("passed " + passed + " of " + total);
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
