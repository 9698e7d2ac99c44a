package plugins;

import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.Scanner;

/** Asks the project; says what it answered and not whether that is right. */
public class Probe {
    public static void main(String[] args) {
        Scanner in = new Scanner(System.in);
        while (in.hasNextLine()) {
            String[] words = in.nextLine().split(" ");
            String said;
            try {
                for (int i = 2; i < words.length; i++) {
                    words[i] = URLDecoder.decode(words[i], StandardCharsets.UTF_8);
                }
                said = answer(words);
            } catch (Throwable error) {
                said = "!" + error.getClass().getSimpleName();
            }
            System.out.println(words[0] + " " + said);
        }
    }

    /** Of a number, what is asked, and what it is asked about. */
    static String answer(String[] words) {
        Settings.setLimit(Integer.parseInt(words[2]));
        Registry registry = new Registry();
        StringBuilder taken = new StringBuilder();
        for (int i = 3; i < words.length; i++) {
            taken.append(registry.register(words[i]) ? "y" : "n");
        }
        if (words[1].equals("fingerprint")) {
            return "" + registry.fingerprint();
        }
        registry.names().clear(); // a copy: the registry must not notice
        String names = text(String.join(" ", registry.names()));
        return Settings.limit() + " " + taken + " " + names;
    }

    static String text(String plain) {
        return URLEncoder.encode(plain, StandardCharsets.UTF_8);
    }
}
