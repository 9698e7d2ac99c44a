package shop.invoice;

import java.util.ArrayList;
import java.util.List;
import javax.annotation.PostConstruct;

/** Invoices in the order of arrival, numbered from the first number on. */
public class Ledger {
    private final List<Invoice> invoices = new ArrayList<>();
    private int next;

    @PostConstruct
    void open() {
        next = 1000;
    }

    public Invoice add(long cents, String note) {
        Invoice invoice = new Invoice(next++, cents, note);
        invoices.add(invoice);
        return invoice;
    }

    public long total() {
        return invoices.stream().mapToLong(invoice -> invoice.cents).sum();
    }
}
