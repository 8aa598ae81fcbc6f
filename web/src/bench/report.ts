/** Figure is one thing that was measured in one place, whatever benchmark it is of. */
export interface Figure {
  id: string;
  group: string;
  place: string;
  unit: string;
  better: "lower" | "higher";
  /** value is the median; of reports from before there was one form for all, the mean where they have it. Nothing: skip says why. */
  value?: number;
  /** median of the samples, where the report has them or tells it. */
  median?: number;
  /** low and high bound the value; sure says that it is its 95 % interval, and not half the quartiles' distance to each side. */
  low?: number;
  high?: number;
  sure?: boolean;
  n: number;
  /** against tells the difference to the place that others are compared with. */
  against?: { text: string; significant?: boolean };
  skip?: string;
  /** alone keeps a figure out of comparisons, as `skerry bench compare` does. */
  alone?: boolean;
}

/** Report is what the page knows of a file. */
export interface Report {
  name: string;
  kind: string;
  title: string;
  began?: string;
  seconds?: number;
  machine: Record<string, string>;
  /** notes are what a reader must know: noise, what is missing, what was not run. */
  notes: string[];
  figures: Figure[];
}

/** largest is the size of a report that is opened, in bytes; `skerry bench` reads no larger one. */
export const largest = 64 << 20;

type Json = null | boolean | number | string | Json[] | { [k: string]: Json };
type Obj = { [k: string]: Json };

// What is read is whatever somebody has on their disk: nothing of it is taken for what it should be.
const obj = (v: Json | undefined): Obj => (v !== null && typeof v === "object" && !Array.isArray(v) ? v : {});
const arr = (v: Json | undefined): Obj[] => (Array.isArray(v) ? v.map(obj) : []);
const num = (v: Json | undefined): number | undefined => (typeof v === "number" && Number.isFinite(v) ? v : undefined);
const str = (v: Json | undefined): string => (typeof v === "string" ? v : "");
const list = (v: Json | undefined): string[] =>
  Array.isArray(v) ? v.filter((s): s is string => typeof s === "string") : [];
const nums = (v: Json | undefined): number[] =>
  Array.isArray(v) ? v.filter((n): n is number => typeof n === "number") : [];

/** percent tells a difference with its sign. */
export function percent(v: number): string {
  return `${v > 0 ? "+" : v < 0 ? "−" : ""}${Math.abs(v).toFixed(1)} %`;
}

/** median of values; undefined for none. */
export function median(values: number[]): number | undefined {
  if (values.length === 0) return undefined;
  const s = [...values].sort((a, b) => a - b);
  const mid = s.length >> 1;
  return s.length % 2 ? s[mid] : (s[mid - 1]! + s[mid]!) / 2;
}

/** summed gives what a summary of bench/device says. */
function summed(
  v: Json | undefined,
  samples: Json | undefined,
): Pick<Figure, "value" | "median" | "low" | "high" | "sure" | "n"> {
  const s = obj(v);
  return {
    value: num(s.mean),
    median: median(nums(samples)),
    low: num(s.low),
    high: num(s.high),
    sure: true,
    n: num(s.n) ?? 0,
  };
}

function times(v: Json | undefined): Figure["against"] {
  const r = obj(v);
  const t = num(r.times);
  return t === undefined ? undefined : { text: `× ${t.toPrecision(3)}`, significant: r.significant === true };
}

function ofRuntime(d: Obj): Pick<Report, "figures" | "notes"> {
  const figures: Figure[] = [];
  const notes = list(d.noise).map((n) => "The machine was noisy: " + n);
  const places = arr(d.places);
  for (const p of places) if (p.skip) notes.push(`${str(p.name)} was not run: ${str(p.skip)}`);
  for (const c of arr(d.cases)) {
    const results = obj(c.results);
    const has = new Set(Object.keys(results));
    const order = [...places.map((p) => str(p.name)).filter((p) => has.delete(p)), ...has];
    for (const place of order) {
      const r = obj(results[place]);
      const o = obj(r.overhead);
      const loss = num(o.percent);
      figures.push({
        id: str(c.id),
        group: str(c.group),
        place,
        unit: str(c.unit),
        better: c.better === "higher" ? "higher" : "lower",
        ...summed(r.summary, r.samples),
        against: loss === undefined ? undefined : { text: percent(loss), significant: o.significant === true },
        skip: str(r.skip) || undefined,
      });
    }
  }
  for (const s of arr(d.starts))
    figures.push({
      id: "start",
      group: "start",
      place: str(s.place),
      unit: "ms",
      better: "lower",
      ...summed(s.summary, s.samples),
      alone: true,
    });
  for (const f of arr(d.footprints))
    figures.push({
      id: `memory of each of ${num(f.instances) ?? 0} idle instances`,
      group: "memory at rest",
      place: str(f.place),
      unit: "MiB",
      better: "lower",
      ...summed(f.summary, f.samples),
      skip: str(f.skip) || undefined,
      alone: true,
    });
  if (d.energy) notes.push("Energy was not measured: " + str(d.energy));
  if (num(d.done) !== num(d.rounds)) notes.push(`${num(d.done) ?? 0} of ${num(d.rounds) ?? 0} rounds are complete`);
  return { figures, notes };
}

function ofInterference(d: Obj): Pick<Report, "figures" | "notes"> {
  const figures: Figure[] = [];
  const notes = [...list(d.noise).map((n) => "The machine was noisy: " + n), ...list(d.missing)];
  for (const p of arr(d.places)) if (p.skip) notes.push(`${str(p.name)} was not run: ${str(p.skip)}`);
  for (const r of arr(d.rows)) {
    const beside = num(r.interference) ? `, ${str(r.neighbour)} neighbour of ${num(r.interference)} CPU` : "";
    const of = str(r.service) && str(r.service) !== "image" ? `${str(r.service)}, ` : ""; // the first version knew images alone
    const what = `${of}${num(r.cpu) ?? 0} CPU${r.pin ? ", " + str(r.pin) : ""}, ${num(r.rate) ?? 0}/s${beside}`;
    const o = obj(r.outcome);
    const l = obj(o.latency);
    const bad =
      str(r.skip) || str(o.invalid) || (num(l.mean) === undefined ? str(o.error) || "no request was answered" : "");
    for (const [id, v, unit, better] of [
      ["mean latency", l.mean, "ms", "lower"],
      ["p99 latency", l.p99, "ms", "lower"],
      ["success", o.success, "%", "higher"],
    ] as const)
      figures.push({
        id: `${id} · ${what}`,
        group: id,
        place: str(r.place),
        unit,
        better,
        value: bad ? undefined : num(v),
        n: num(o.sent) ?? 0,
        skip: bad || undefined,
      });
  }
  if (d.unfinished) notes.push("It was interrupted: rows are missing");
  return { figures, notes };
}

function ofOrchestrators(d: Obj): Pick<Report, "figures" | "notes"> {
  const notes = arr(d.adapters).flatMap((a) =>
    [a.skip, a.unwatched].filter(Boolean).map((why) => `${str(a.name)}: ${str(why as Json)}`),
  );
  const figures = arr(d.rows).flatMap((r) =>
    Object.entries(obj(r.results)).map(([place, v]): Figure => {
      const x = obj(v);
      return {
        id: `${str(r.metric)} · ${num(r.replicas) ?? 0} replicas`,
        group: str(r.metric),
        place,
        unit: str(r.unit),
        better: "lower",
        ...summed(x.summary, x.samples),
        against: times(x.ratio),
      };
    }),
  );
  return { figures, notes };
}

function ofLab(d: Obj): Pick<Report, "figures" | "notes"> {
  const notes = list(d.noise).map((n) => "The machine was noisy: " + n);
  if (d.unfinished) notes.push("It was interrupted: cells are missing");
  const figures = arr(d.rows).map((r): Figure => {
    const s = summed(r.summary, r.samples);
    return {
      id: `${str(r.part)} · ${str(r.metric)}`,
      group: str(r.part),
      place: str(r.setting),
      unit: str(r.unit),
      better: "lower",
      ...s,
      value: s.n ? s.value : undefined,
      against: times(r.ratio),
      skip: str(r.why) || undefined,
    };
  });
  return { figures, notes };
}

/** spread gives what is told by its median and half the distance between the quartiles. */
function spread(f: Obj): Pick<Figure, "value" | "median" | "low" | "high" | "n"> {
  const m = num(f.median);
  const s = num(f.spread) ?? 0;
  return m === undefined ? { n: 0 } : { value: m, median: m, low: m - s, high: m + s, n: num(f.n) ?? 0 };
}

/** wireMetric gives a metric's unit and direction, as bench/network.go has them. */
function wireMetric(metric: string): [unit: string, better: Figure["better"]] {
  if (["tcp1", "tcp8", "udp"].includes(metric)) return ["Gbit/s", "higher"];
  if (metric === "conns") return ["1/s", "higher"];
  return [metric === "cpu" ? "s/Gbit" : "µs", "lower"];
}

function ofNetwork(d: Obj): Pick<Report, "figures" | "notes"> {
  const figures = arr(d.wires).flatMap((w) =>
    arr(w.cases).flatMap((c) => {
      const all = Object.entries(obj(c.figures));
      if (all.length === 0)
        return [
          {
            id: str(w.wire),
            group: str(w.wire),
            place: str(c.name),
            unit: "",
            better: "lower" as const,
            n: 0,
            skip: str(c.skip) || "nothing was measured",
          },
        ];
      return all.map(([metric, v]): Figure => {
        const f = obj(v);
        const ratio = num(f.ratio);
        const [unit, better] = wireMetric(metric);
        return {
          id: `${str(w.wire)} · ${metric}`,
          group: str(w.wire),
          place: str(c.name),
          unit,
          better,
          ...spread(f),
          against: ratio ? { text: `× ${ratio.toPrecision(3)} of direct` } : undefined,
        };
      });
    }),
  );
  return { figures, notes: list(d.skipped) };
}

function ofSchedule(d: Obj): Pick<Report, "figures" | "notes"> {
  const figures: Figure[] = [];
  const time = (id: string, group: string, place: string, v: Json | undefined) => {
    const t = obj(v);
    const n = num(t.n) ?? 0;
    for (const [what, value] of [
      ["median", num(t.median)],
      ["p99", num(t.p99)],
    ] as const)
      figures.push({
        id: `${id} · ${what}`,
        group,
        place,
        unit: "µs",
        better: "lower",
        value,
        median: what === "median" ? value : undefined,
        n,
      });
  };
  for (const s of arr(d.splits))
    for (const tier of ["root", "cluster", "both"])
      time(`split · ${tier}`, "split", `${num(s.workers) ?? 0} workers in ${num(s.clusters) ?? 0} clusters`, s[tier]);
  for (const s of arr(d.sizes))
    for (const policy of ["rom", "ldp", "sample"])
      time(`size · ${policy}`, "size", `${num(s.workers) ?? 0} workers`, s[policy]);
  for (const r of arr(d.rates)) {
    const m = num(r.perSecond);
    figures.push({
      id: `rate · ${str(r.policy)}`,
      group: "rate",
      place: `${num(r.workers) ?? 0} workers`,
      unit: "1/s",
      better: "higher",
      ...spread({ median: m ?? null, spread: r.spread ?? null, n: r.n ?? null }),
    });
  }
  time(`rank of ${num(d.rankOf) ?? 0} clusters`, "rank", "root", d.rank);
  return { figures, notes: list(d.notInIt).map((n) => "Not in the times: " + n) };
}

/** ofReport reads what all benchmarks write now: a figure there is a figure here. */
function ofReport(d: Obj): Pick<Report, "figures" | "notes"> {
  const quiet = obj(d.quiet);
  const notes: string[] = [];
  if (!d.quiet) notes.push("Nobody knows whether the machine was quiet");
  else if (quiet.notQuiet) notes.push("Not in quiet: " + str(quiet.notQuiet));
  if (d.unfinished) notes.push("It was interrupted: more was to be measured");
  const where = (m: Obj) =>
    `round ${num(m.round) ?? 0}${m.group ? " of " + str(m.group) : ""}${m.place ? " in " + str(m.place) : ""}`;
  for (const m of arr(d.disturbed)) notes.push(`Disturbed, and does not count: ${where(m)}: ${str(m.by)}`);
  for (const m of arr(d.failed)) notes.push(`Failed: ${where(m)}: ${str(m.by)}`);
  notes.push(...list(d.notes));
  for (const p of arr(d.places)) if (p.skip) notes.push(`${str(p.name)} was not run: ${str(p.skip)}`);
  const figures = arr(d.figures).map((f): Figure => {
    const v = obj(f.value);
    return {
      id: str(f.group) ? `${str(f.group)} · ${str(f.name)}` : str(f.name),
      group: str(f.group) || str(f.name).split(".")[0]!,
      place: str(f.place),
      unit: str(f.unit),
      better: f.better === "higher" ? "higher" : "lower",
      value: num(v.value),
      median: num(f.quantile) ? undefined : num(v.value),
      low: num(v.low),
      high: num(v.high),
      sure: true,
      n: num(v.n) ?? 0,
      against: times(f.against),
      skip: str(f.skip) || undefined,
    };
  });
  return { figures, notes };
}

const readers: Record<string, [title: string, read: (d: Obj) => Pick<Report, "figures" | "notes">]> = {
  "skerry.bench/1": ["", ofReport],
  "skerry.bench.runtime/1": ["Runtimes on a device", ofRuntime],
  "skerry.bench.interference/1": ["Interference of neighbours", ofInterference],
  "skerry.bench.interference/2": ["Interference of neighbours", ofInterference],
  "skerry.bench.orchestrator/1": ["Orchestrators side by side", ofOrchestrators],
  "skerry.bench.orchestrator.lab/1": ["Orchestration in labs", ofLab],
  network: ["The overlay", ofNetwork],
  schedule: ["Placement", ofSchedule],
};

/** parseReport reads what `skerry bench … --json` wrote; its error says what is wrong with a file. */
export function parseReport(name: string, text: string): Report {
  let raw: Json;
  try {
    raw = JSON.parse(text) as Json;
  } catch {
    throw new Error(`${name} is not JSON; the page reads what “skerry bench” writes as JSON`);
  }
  const d = obj(raw);
  let kind = str(d.schema);
  // Those of the network and of placement have no schema, but fields that none of the others has.
  if (!kind && Array.isArray(d.wires) && "loadAfter" in d) kind = "network";
  if (!kind && Array.isArray(d.splits) && Array.isArray(d.sizes)) kind = "schedule";
  const reader = Object.hasOwn(readers, kind) ? readers[kind] : undefined;
  if (!reader)
    throw new Error(
      kind
        ? `${name} is of schema ${kind.slice(0, 80)}, which this page cannot read`
        : `${name} is not a report of “skerry bench”`,
    );
  const machine = Object.fromEntries(
    Object.entries(obj(d.machine)).filter((e): e is [string, string] => typeof e[1] === "string"),
  );
  const { figures, notes } = reader[1](d);
  if (d.quick) notes.unshift("It was quick: the work of each case was shortened");
  return {
    name,
    kind: reader[0] ? kind : str(d.kind), // the one form has reports of every kind
    title: reader[0] || str(d.title),
    began: str(d.began) || undefined,
    seconds: num(d.seconds) ?? num(d.duration),
    machine,
    notes,
    figures,
  };
}

/** Change is a figure in two reports; percent is how much better the second is, less than 0 worse. */
export interface Change {
  was: Figure;
  is: Figure;
  percent: number;
  significant: boolean;
}

/**
 * changes compares what two reports have in common, by the rule of `skerry bench compare`: a difference is significant if both
 * means are of more than two rounds and their 95 % intervals do not meet. Without intervals nothing is.
 */
export function changes(was: Report, is: Report): Change[] {
  if (was.kind !== is.kind) return [];
  const key = (f: Figure) => f.id + "\n" + f.place;
  const before = new Map(was.figures.map((f) => [key(f), f]));
  const out: Change[] = [];
  for (const b of is.figures) {
    const a = before.get(key(b));
    if (!a || a.alone || b.alone || !a.value || !b.value) continue;
    const known = a.sure && b.sure && [a.low, a.high, b.low, b.high].every((v) => v !== undefined);
    out.push({
      was: a,
      is: b,
      percent: 100 * ((b.better === "lower" ? a.value / b.value : b.value / a.value) - 1),
      significant: !!known && Math.min(a.n, b.n) > 2 && (b.low! > a.high! || b.high! < a.low!),
    });
  }
  return out;
}

/** otherMachine tells what of the machine differs between two reports and matters to figures. */
export function otherMachine(was: Report, is: Report): string[] {
  return ["cpu", "cores", "kernel", "memory", "governor", "mitigations"]
    .filter((k) => was.machine[k] !== is.machine[k])
    .map((k) => `${k} was ${was.machine[k] ?? "not told"}, is ${is.machine[k] ?? "not told"}`);
}

/** figureText tells a number with four digits that count. */
export function figureText(v: number | undefined): string {
  if (v === undefined) return "–";
  if (v === 0) return "0";
  const a = Math.abs(v);
  return a >= 1e6 || a < 1e-3
    ? v.toPrecision(4)
    : a >= 1000
      ? Math.round(v).toLocaleString("en")
      : String(Number(v.toPrecision(4)));
}
