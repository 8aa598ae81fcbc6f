import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { changes, figureText, median, otherMachine, parseReport, percent } from "./report";

const sample = (name: string) => readFileSync("src/bench/testdata/" + name, "utf8");
// Written by bench/report's TestDashboardSample, by the code of `skerry bench`.
const was = parseReport("report.json", sample("report.json"));
const is = parseReport("later.json", sample("later.json"));
// One of before all benchmarks had one form, as it was written then.
const old = parseReport("runtime.json", sample("runtime.json"));

describe("reports of skerry bench", () => {
  it("reads an old one of runtimes", () => {
    expect(old.title).toBe("Runtimes on a device");
    expect(old.machine.kernel).toBe("6.1");
    const oci = old.figures.find((f) => f.id === "os.fork" && f.place === "oci")!;
    expect(oci).toMatchObject({
      value: 200,
      median: 200,
      n: 5,
      unit: "us",
      better: "lower",
      against: { text: "−50.0 %", significant: true },
    });
    expect(oci.low!).toBeLessThan(200);
    expect(oci.high!).toBeGreaterThan(200);
    expect(old.figures.find((f) => f.id === "start")).toMatchObject({ value: 21, unit: "ms", alone: true });
    expect(old.figures.find((f) => f.place === "gvisor")).toMatchObject({
      skip: "runsc is not installed",
      value: undefined,
    });
    expect(old.notes).toContain("gvisor was not run: runsc is not installed");
  });

  it("reads the form that all benchmarks write", () => {
    const r = was;
    expect(r.title).toBe("Ways <there>");
    expect(r.figures.find((f) => f.id === "mtu · stream" && f.place === "plain")).toMatchObject({
      value: 5.5,
      low: 5,
      high: 6,
      sure: true,
      n: 5,
      unit: "Gbit/s",
      better: "higher",
      against: { text: "× 0.500", significant: true },
    });
    expect(r.figures.find((f) => f.id === "agent.disk")).toMatchObject({
      skip: "--quick leaves it out",
      value: undefined,
    });
    expect(r.notes).toContain("Disturbed, and does not count: round 6: others used 1.90 processors: cc1");
    expect(changes(r, r).every((c) => !c.significant && c.percent === 0)).toBe(true);
  });

  it("finds the changes that skerry bench compare finds", () => {
    const want = JSON.parse(sample("changes.json")) as {
      Is: { group?: string; name: string; place?: string };
      Percent: number;
      Significant: boolean;
    }[];
    const got = changes(was, is);
    expect(want.some((c) => c.Significant) && want.some((c) => !c.Significant)).toBe(true);
    expect(got.map((c) => [c.is.id, c.is.place, c.significant])).toEqual(
      want.map((c) => [(c.Is.group ? c.Is.group + " · " : "") + c.Is.name, c.Is.place ?? "", c.Significant]),
    );
    for (const [n, c] of got.entries()) expect(c.percent).toBeCloseTo(want[n]!.Percent, 9);
    expect(otherMachine(was, is)).toEqual([]);
    expect(otherMachine(was, { ...is, machine: { ...was.machine, kernel: "6.12" } })).toEqual([
      "kernel was 6.1, is 6.12",
    ]);
  });

  it("compares no reports of two kinds", () => {
    expect(changes(was, { ...is, kind: "budget" })).toEqual([]);
  });

  it("reads the others", () => {
    const lab = parseReport(
      "lab",
      JSON.stringify({
        schema: "skerry.bench.orchestrator.lab/1",
        rows: [
          {
            part: "size",
            setting: "4 workers",
            metric: "ready",
            unit: "s",
            samples: [1, 2, 6],
            summary: { mean: 3, low: 1, high: 6, n: 3 },
            ratio: { times: 2, significant: false },
          },
        ],
      }),
    );
    expect(lab.figures[0]).toMatchObject({
      id: "size · ready",
      place: "4 workers",
      value: 3,
      median: 2,
      against: { text: "× 2.00", significant: false },
    });
    const net = parseReport(
      "net",
      JSON.stringify({
        machine: {},
        loadAfter: "1",
        wires: [
          {
            wire: "gso",
            cases: [
              { name: "overlay", figures: { tcp8: { median: 9, spread: 1, ratio: 0.9, n: 5 } } },
              { name: "other", skip: "not installed" },
            ],
          },
        ],
      }),
    );
    expect(net.figures[0]).toMatchObject({
      id: "gso · tcp8",
      unit: "Gbit/s",
      better: "higher",
      low: 8,
      high: 10,
      against: { text: "× 0.900 of direct" },
    });
    expect(net.figures[1]!.skip).toBe("not installed");
    expect(changes(net, net).every((c) => !c.significant)).toBe(true);
    const beside = parseReport(
      "i",
      JSON.stringify({
        schema: "skerry.bench.interference/1",
        rows: [
          {
            place: "oci",
            cpu: 1,
            rate: 8,
            outcome: { sent: 9, success: 100, invalid: "3 % were late", latency: { mean: 5, p99: 9 } },
          },
        ],
      }),
    );
    expect(beside.figures[0]).toMatchObject({
      id: "mean latency · 1 CPU, 8/s",
      skip: "3 % were late",
      value: undefined,
    });
    const other = parseReport(
      "i",
      JSON.stringify({
        schema: "skerry.bench.interference/2",
        rows: [
          {
            place: "oci",
            service: "video",
            cpu: 1,
            rate: 8,
            outcome: { sent: 9, success: 100, latency: { mean: 5, p99: 9 } },
          },
        ],
      }),
    );
    expect(other.figures[0]).toMatchObject({ id: "mean latency · video, 1 CPU, 8/s", value: 5 });
    const orch = parseReport(
      "o",
      JSON.stringify({
        schema: "skerry.bench.orchestrator/1",
        rows: [
          {
            metric: "ready",
            replicas: 10,
            unit: "s",
            results: { nomad: { samples: [4], summary: { mean: 4, low: 4, high: 4, n: 1 } } },
          },
        ],
      }),
    );
    expect(orch.figures[0]).toMatchObject({ id: "ready · 10 replicas", place: "nomad", value: 4 });
    const sched = parseReport(
      "s",
      JSON.stringify({
        splits: [],
        sizes: [{ workers: 10, ldp: { median: 3, p99: 7, n: 9 } }],
        rates: [{ policy: "ldp", workers: 10, perSecond: 100, spread: 5, n: 3 }],
      }),
    );
    expect(sched.figures.find((f) => f.id === "size · ldp · p99")).toMatchObject({ value: 7 });
    expect(sched.figures.find((f) => f.id === "rate · ldp")).toMatchObject({ value: 100, low: 95, high: 105 });
  });

  it("says what is wrong with a file", () => {
    expect(() => parseReport("x", "{")).toThrow("x is not JSON");
    for (const bad of ["null", "[]", "3", "{}", '{"schema":7}'])
      expect(() => parseReport("x", bad)).toThrow("x is not a report");
    expect(() => parseReport("x", '{"schema":"skerry.bench.runtime/9"}')).toThrow("runtime/9");
    expect(() => parseReport("x", '{"schema":"constructor"}')).toThrow("cannot read");
  });

  it("takes nothing of a file for what it should be", () => {
    for (const cases of ["[null]", "7", '[{"results":{"oci":null}}]', '[{"results":[1],"id":{}}]'])
      expect(() =>
        parseReport("x", `{"schema":"skerry.bench.runtime/1","cases":${cases},"places":[null,3]}`),
      ).not.toThrow();
  });

  it("tells numbers", () => {
    expect([
      figureText(undefined),
      figureText(0),
      figureText(1234567),
      figureText(12345),
      figureText(0.123456),
    ]).toEqual(["–", "0", "1.235e+6", "12,345", "0.1235"]);
    expect([percent(-3), percent(0), percent(2.25)]).toEqual(["−3.0 %", "0.0 %", "+2.3 %"]);
    expect([median([]), median([3, 1]), median([3, 1, 9])]).toEqual([undefined, 2, 3]);
  });
});
