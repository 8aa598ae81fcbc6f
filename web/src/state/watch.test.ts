import { afterEach, expect, test, vi } from "vitest";
import { ApiError, type Client } from "../api/client";
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

test("what is shown counts as of before when the server says nothing, as after the tab was hidden", async () => {
  vi.useFakeTimers();
  const hide = (hidden: boolean) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event("visibilitychange"));
  };
  let silent = false;
  const client = {
    call: async () => ({ items: [] }),
    open: async (_: string, __: string, c: { signal: AbortSignal }) => {
      if (silent) return new Promise<Response>(() => {});
      return new Response(
        new ReadableStream<Uint8Array>({
          start(control) {
            control.enqueue(new TextEncoder().encode(JSON.stringify({ type: "synced" }) + "\n"));
            c.signal.addEventListener("abort", () => control.error(new Error("ended")));
          },
        }),
      );
    },
  } as unknown as Client;
  const w = new Watch(client, { kinds: ["instance"] });
  const stop = w.subscribe(() => {});
  try {
    await vi.advanceTimersByTimeAsync(300);
    expect(w.snapshot().live).toBe(true);
    hide(true);
    silent = true;
    hide(false);
    await vi.advanceTimersByTimeAsync(1000);
    expect(w.snapshot().live).toBe(true); // it is looked for yet
    await vi.advanceTimersByTimeAsync(4000);
    expect(w.snapshot().live).toBe(false);
  } finally {
    stop();
    hide(false);
  }
});

test("earlier events are asked for again until they are there; till then nobody says that there are none", async () => {
  vi.useFakeTimers();
  let asked = 0;
  const w = new Watch(
    {
      call: async () => {
        if (++asked < 3) throw new ApiError(503, { detail: "the role is starting" });
        return { items: [{ seq: 1, at: "2026-01-01T00:00:00Z", reason: "Ready", text: "x", type: "Normal" }] };
      },
      open: async () => new Promise<Response>(() => {}),
    } as unknown as Client,
    { kinds: ["event"] },
  );
  const stop = w.subscribe(() => {});
  await vi.advanceTimersByTimeAsync(1000);
  expect(w.snapshot().past).toBe(false);
  await vi.advanceTimersByTimeAsync(15_000);
  expect(asked).toBe(3);
  expect(w.snapshot().past).toBe(true);
  expect(w.snapshot().events).toHaveLength(1);
  stop();
});
