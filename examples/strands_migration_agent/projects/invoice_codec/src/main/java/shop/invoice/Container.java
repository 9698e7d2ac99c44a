package shop.invoice;

import java.lang.reflect.Method;
import javax.annotation.PostConstruct;

/** Makes objects and calls what they want called first. */
public final class Container {
    private Container() {}

    public static <T> T make(Class<T> type) {
        try {
            T made = type.getDeclaredConstructor().newInstance();
            for (Method method : type.getDeclaredMethods()) {
                if (method.isAnnotationPresent(PostConstruct.class)) {
                    method.setAccessible(true);
                    method.invoke(made);
                }
            }
            return made;
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }
}
