package shop.invoice;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import javax.xml.bind.DatatypeConverter;

/** An invoice as it goes over the wire: number, amount in cents and a note, with a checksum. */
public final class Invoice {
    public final int number;
    public final long cents;
    public final String note;

    public Invoice(int number, long cents, String note) {
        this.number = number;
        this.cents = cents;
        this.note = note;
    }

    public String encode() {
        byte[] bytes = note.getBytes(StandardCharsets.UTF_8);
        String body = number + ":" + cents + ":" + DatatypeConverter.printBase64Binary(bytes);
        return body + ":" + checksum(body);
    }

    public static Invoice decode(String line) {
        int end = line.lastIndexOf(':');
        String body = line.substring(0, end);
        if (!checksum(body).equals(line.substring(end + 1))) {
            throw new IllegalArgumentException("the checksum is wrong");
        }
        String[] parts = body.split(":", 3);
        byte[] bytes = DatatypeConverter.parseBase64Binary(parts[2]);
        String note = new String(bytes, StandardCharsets.UTF_8);
        return new Invoice(Integer.parseInt(parts[0]), Long.parseLong(parts[1]), note);
    }

    static String checksum(String body) {
        try {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            byte[] hash = digest.digest(body.getBytes(StandardCharsets.UTF_8));
            return DatatypeConverter.printHexBinary(hash).substring(0, 12);
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }
}
