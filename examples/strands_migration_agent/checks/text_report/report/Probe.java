package report;

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
        Report report = new Report();
        for (int i = 2; i < words.length; i++) {
            report.read(words[i]);
        }
        return text(words[1].equals("table") ? report.table() : report.packed());
    }

    static String text(String plain) {
        return URLEncoder.encode(plain, StandardCharsets.UTF_8);
    }
}
