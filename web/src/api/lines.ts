/** lines gives the objects of an answer in which each line is one, as they come. */
export async function* lines<T>(res: Response): AsyncGenerator<T> {
  const reader = res.body!.getReader();
  const text = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      rest += text.decode(value, { stream: true });
      let from = 0;
      for (let i = rest.indexOf("\n"); i >= 0; i = rest.indexOf("\n", from)) {
        if (i > from) yield JSON.parse(rest.slice(from, i)) as T;
        from = i + 1;
      }
      rest = rest.slice(from);
    }
    if (rest.trim()) yield JSON.parse(rest) as T;
  } finally {
    reader.cancel().catch(() => {});
  }
}
