/** ago tells how long ago something was, in its largest unit. */
export function ago(at: string | undefined, now = Date.now()): string {
  if (!at) return "–";
  const t = Date.parse(at);
  if (!Number.isFinite(t) || t <= 0) return "–";
  return span(Math.max(0, now - t));
}

/** span tells a time given in milliseconds. */
export function span(ms: number): string {
  const s = ms / 1000;
  if (s < 1) return Math.round(ms) + " ms";
  if (s < 60) return Math.floor(s) + " s";
  if (s < 3600) return Math.floor(s / 60) + " min";
  if (s < 86400) return Math.floor(s / 3600) + " h";
  return Math.floor(s / 86400) + " d";
}

/** clock tells the time of day of something, with the date if it was not today. */
export function clock(at: string, now = new Date()): string {
  const d = new Date(at);
  const time = d.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return d.toDateString() === now.toDateString() ? time : d.toLocaleDateString() + " " + time;
}

const binary = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** bytes tells an amount of memory or storage. */
export function bytes(n: number): string {
  let i = 0;
  while (Math.abs(n) >= 1024 && i < binary.length - 1) {
    n /= 1024;
    i++;
  }
  return (i === 0 || Math.abs(n) >= 100 ? Math.round(n) : n.toFixed(1)) + " " + binary[i];
}

const suffixes: Record<string, number> = {
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  P: 1e15,
  Ki: 1024,
  Mi: 1024 ** 2,
  Gi: 1024 ** 3,
  Ti: 1024 ** 4,
  Pi: 1024 ** 5,
};

/** parseBytes reads an amount as manifests have it, such as 64Mi. */
export function parseBytes(v: string | number | undefined): number {
  if (typeof v === "number") return v;
  const m = /^([0-9.]+)([kMGTP]i?|Ki)?$/.exec(v ?? "");
  return m ? Number(m[1]) * (m[2] ? (suffixes[m[2]] ?? 1) : 1) : 0;
}

/** parseCPU reads a number of processors, such as 500m. */
export function parseCPU(v: string | number | undefined): number {
  if (typeof v === "number") return v;
  const m = /^([0-9.]+)(m?)$/.exec(v ?? "");
  return m ? Number(m[1]) / (m[2] ? 1000 : 1) : 0;
}

/** cores tells a number of processors. */
export function cores(n: number): string {
  return n < 1 ? Math.round(n * 1000) + " m" : n.toFixed(n < 10 ? 2 : 0).replace(/\.?0+$/, "");
}

/** count tells a number with its noun. */
export function count(n: number, one: string, many = one + "s"): string {
  return n.toLocaleString() + " " + (n === 1 ? one : many);
}
