package plugins;

public class RegistryTest {
    static int passed;
    static int total;

    public static void main(String[] args) {
        check("register", () -> new Registry().register("a"));
        check("names", () -> {
            Registry registry = new Registry();
            registry.register("a");
            registry.register("b");
            return registry.names().equals(java.util.Arrays.asList("a", "b")) && !registry.register("a");
        });
        check("limit", () -> {
            Settings.setLimit(1);
            Registry registry = new Registry();
            return Settings.limit() == 1 && registry.register("a") && !registry.register("b");
        });
        check("fingerprint", () -> {
            Registry registry = new Registry();
            registry.register("a");
            return registry.fingerprint() == 31 * (31 * 17 + 'a') + '/';
        });
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
