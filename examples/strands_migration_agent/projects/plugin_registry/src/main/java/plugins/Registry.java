package plugins;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.List;

/** Plugins by name, at most as many as the settings allow. */
public final class Registry {
    private final ArrayList<String> names = new ArrayList<>();

    public boolean register(String name) {
        if (names.size() >= Settings.limit() || names.contains(name)) {
            return false;
        }
        return names.add(name);
    }

    /** A copy of the names, taken without going through the list. */
    public List<String> names() {
        try {
            Field field = ArrayList.class.getDeclaredField("elementData");
            field.setAccessible(true);
            Object[] data = (Object[]) field.get(names);
            List<String> copy = new ArrayList<>();
            for (int i = 0; i < names.size(); i++) {
                copy.add((String) data[i]);
            }
            return copy;
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    /** The same number for the same names in the same order. */
    public int fingerprint() {
        int hash = 17;
        for (String name : names()) {
            for (char letter : letters(name)) {
                hash = 31 * hash + letter;
            }
            hash = 31 * hash + '/';
        }
        return hash;
    }

    private static char[] letters(String text) {
        try {
            Field field = String.class.getDeclaredField("value");
            field.setAccessible(true);
            return (char[]) field.get(text);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }
}
