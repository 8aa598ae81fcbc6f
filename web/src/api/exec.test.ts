import { expect, test } from "vitest";
import { Frame, Frames, frame, maxFrame } from "./exec";

const text = (s: string) => new TextEncoder().encode(s);

test("frames are put together from parts of any size", () => {
  const all = [frame(Frame.Stdout, text("ebb")), frame(Frame.Stderr, text("")), frame(Frame.Exit, text('{"code":3}'))];
  const bytes = new Uint8Array(all.reduce((n, f) => n + f.length, 0));
  all.reduce((at, f) => (bytes.set(f, at), at + f.length), 0);
  for (const size of [1, 2, 7, bytes.length]) {
    const frames = new Frames();
    const out: [number, string][] = [];
    for (let at = 0; at < bytes.length; at += size)
      for (const [t, p] of frames.take(bytes.subarray(at, at + size))) out.push([t, new TextDecoder().decode(p)]);
    expect(out).toEqual([
      [Frame.Stdout, "ebb"],
      [Frame.Stderr, ""],
      [Frame.Exit, '{"code":3}'],
    ]);
  }
});

test("a frame that is too large is refused", () => {
  const bad = new Uint8Array(5);
  new DataView(bad.buffer).setUint32(1, maxFrame + 1);
  expect(() => [...new Frames().take(bad)]).toThrow();
});
