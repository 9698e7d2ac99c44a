package plugins;

import java.lang.reflect.Field;
import java.lang.reflect.Modifier;

/** Settings that the host may change once, before any plugin is loaded. */
public final class Settings {
    public static final Integer LIMIT = Integer.valueOf(3);

    private Settings() {}

    public static int limit() {
        return LIMIT;
    }

    /** Changes the limit of plugins. */
    public static void setLimit(int limit) {
        try {
            Field field = Settings.class.getDeclaredField("LIMIT");
            Field modifiers = Field.class.getDeclaredField("modifiers");
            modifiers.setAccessible(true);
            modifiers.setInt(field, field.getModifiers() & ~Modifier.FINAL);
            field.set(null, Integer.valueOf(limit));
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }
}
