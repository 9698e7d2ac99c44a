package shop.invoice;

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
        switch (words[1]) {
            case "encode":
                int number = Integer.parseInt(words[2]);
                return text(new Invoice(number, Long.parseLong(words[3]), words[4]).encode());
            case "decode":
                Invoice back = Invoice.decode(words[2]);
                return back.number + " " + back.cents + " " + text(back.note);
            default:
                Ledger ledger = Container.make(Ledger.class);
                StringBuilder numbers = new StringBuilder();
                for (int i = 2; i < words.length; i++) {
                    numbers.append(ledger.add(Long.parseLong(words[i]), "note").number).append(" ");
                }
                return numbers.toString() + ledger.total();
        }
    }

    static String text(String plain) {
        return URLEncoder.encode(plain, StandardCharsets.UTF_8);
    }
}
