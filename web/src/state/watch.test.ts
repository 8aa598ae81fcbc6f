import { afterEach, expect, test, vi } from "vitest";
import type { Client } from "../api/client";
import type { Instance, WatchMessage } from "../api/types";
import { Watch } from "./watch";

const instance = (id: string, state = "Running") =>
  ({ id, state, service: { app: { namespace: "default", name: "tide" }, service: "gauge" } }) as Instance;

/** server gives one answer after the other, each with these messages, and then breaks the connection. */
function server(...answers: WatchMessage[][]): Client {
  let n = 0;
  return {
    call: async () => ({ items: [] }),
    open: async () => {
      const list = answers[n++];
      if (!list) return new Promise<Response>(() => {});
      return new Response(list.map((m) => JSON.stringify(m) + "\n").join(""));
    },
  } as unknown as Client;
}

afterEach(() => vi.useRealTimers());

test("what a new listing does not tell any more is gone", async () => {
  vi.useFakeTimers();
  const w = new Watch(
    server(
      [
        { type: "set", kind: "instance", instance: instance("a") },
        { type: "set", kind: "instance", instance: instance("b") },
        { type: "synced" },
      ],
      [{ type: "set", kind: "instance", instance: instance("b", "Failed") }, { type: "synced" }],
    ),
    { kinds: ["instance"] },
  );
  const stop = w.subscribe(() => {});
  await vi.advanceTimersByTimeAsync(300);
  expect([...w.snapshot().instances.keys()]).toEqual(["a", "b"]);
  expect(w.snapshot().live).toBe(false); // the server has ended the connection; what was seen stays
  expect(w.snapshot().synced).toBe(true);
  await vi.advanceTimersByTimeAsync(2000);
  expect([...w.snapshot().instances.keys()]).toEqual(["b"]);
  expect(w.snapshot().instances.get("b")?.state).toBe("Failed");
  stop();
});

test("changes come together, and deleted things go", async () => {
  vi.useFakeTimers();
  const w = new Watch(server(), { kinds: ["instance"] });
  let told = 0;
  const stop = w.subscribe(() => told++);
  for (let i = 0; i < 1000; i++) w.take({ type: "set", kind: "instance", instance: instance("i" + i) });
  w.take({ type: "deleted", kind: "instance", id: "i7" });
  await vi.advanceTimersByTimeAsync(500);
  expect(w.snapshot().instances.size).toBe(999);
  expect(told).toBe(1);
  stop();
});
