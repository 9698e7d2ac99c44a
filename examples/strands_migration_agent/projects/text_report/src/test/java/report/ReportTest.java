package report;

public class ReportTest {
    static int passed;
    static int total;

    public static void main(String[] args) {
        Report report = new Report();
        report.read("the cat and the dog");
        check("table", () -> report.table().equals("and 1\ncat 1\ndog 1\nthe 2\n"));
        check("packed", () -> report.packed().equals("YW5kIDEKY2F0IDEKZG9nIDEKdGhlIDIK"));
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
