package textkit;

import java.nio.charset.Charset;
import java.util.Base64;

/** Text in a form that survives mail. Since 2.0 the character set is named. */
public final class Packer {
    private final Charset charset;

    private Packer(Charset charset) {
        this.charset = charset;
    }

    public static Packer of(Charset charset) {
        return new Packer(charset);
    }

    public String pack(CharSequence text) {
        return Base64.getEncoder().encodeToString(text.toString().getBytes(charset));
    }
}
