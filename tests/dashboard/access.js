// What a page lacks for those who do not see it well, or at all: one list of findings a kind.
() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const named = (e) => e.textContent.trim() || e.ariaLabel || e.title || e.getAttribute("aria-labelledby");
  const ids = all("[id]").map((e) => e.id);

  const channels = (text) => {
    const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
    return text.startsWith("color(srgb") ? [r * 255, g * 255, b * 255, a] : [r, g, b, a];
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((v, i) => v * a + below[i] * (1 - a));
  const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const behind = (e) => over(channels(getComputedStyle(e).backgroundColor), e.parentElement ? behind(e.parentElement) : [255, 255, 255]);
  const contrast = (e) => {
    const style = getComputedStyle(e);
    const back = behind(e);
    const ink = over(channels(e instanceof SVGElement ? style.fill : style.color), back);
    const [low, high] = [light(ink), light(back)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const unread = "noscript, .hidden, .skip, option, [aria-hidden]";
  const written = () => {
    const found = new Set();
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
      const e = walk.currentNode.parentElement;
      if (walk.currentNode.data.trim() && e.checkVisibility() && !e.closest(unread)) found.add(e);
    }
    return [...found];
  };

  return {
    nameless: all("a, button, input, select, summary, [role=img], dialog").filter((e) => e.checkVisibility() && !named(e)).map((e) => e.outerHTML),
    twice: ids.filter((id, i) => ids.indexOf(id) !== i),
    unscoped: all("thead th").filter((e) => e.scope !== "col").map((e) => e.outerHTML),
    faint: written().map((e) => [contrast(e), e]).filter(([ratio]) => ratio < 4.5)
      .map(([ratio, e]) => `${ratio.toFixed(2)} ${e.tagName}.${e.getAttribute("class")} ${e.textContent.slice(0, 30)}`),
    headings: all("main :is(h1, h2, h3)").map((e) => Number(e.tagName[1])),
  };
}
