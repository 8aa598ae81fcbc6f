import { expect, test } from "vitest";
import { ago, bytes, cores, parseBytes, parseCPU, span } from "./format";
import { words } from "./parts/terminal";

test("amounts are read as manifests have them", () => {
  expect(parseBytes("64Mi")).toBe(64 * 1024 * 1024);
  expect(parseBytes("1.5G")).toBe(1.5e9);
  expect(parseBytes(12)).toBe(12);
  expect(parseBytes("what")).toBe(0);
  expect(parseCPU("500m")).toBe(0.5);
  expect(parseCPU("2")).toBe(2);
});

test("amounts are told in units that people read", () => {
  expect(bytes(876 * 1024)).toBe("876 KiB");
  expect(bytes(1.5 * 1024 ** 3)).toBe("1.5 GiB");
  expect(cores(0.05)).toBe("50 m");
  expect(cores(2)).toBe("2");
  expect(span(59_999)).toBe("59 s");
  expect(ago(new Date(Date.now() - 3 * 3600e3).toISOString())).toBe("3 h");
  expect(ago(undefined)).toBe("–");
});

test("a command is split as a shell does", () => {
  expect(words(`sh -c "echo 'a b'" ''`)).toEqual(["sh", "-c", "echo 'a b'", ""]);
});
