// What the form needs of JSON Schema: that of manifests uses no more than this.
export interface Schema {
  $ref?: string;
  $defs?: Record<string, Schema>;
  type?: string | string[];
  title?: string;
  description?: string;
  readOnly?: boolean;
  properties?: Record<string, Schema>;
  additionalProperties?: boolean | Schema;
  required?: string[];
  items?: Schema;
  enum?: string[];
  pattern?: string;
  minimum?: number;
  maximum?: number;
}

/** resolve follows a reference; what stands beside it, such as a description, counts for more. */
export function resolve(root: Schema, s: Schema): Schema {
  if (!s.$ref) return s;
  const to = root.$defs?.[s.$ref.replace("#/$defs/", "")];
  if (!to) throw new Error("the schema has no " + s.$ref);
  return { ...resolve(root, to), ...s, $ref: undefined };
}

export type Kind =
  | "text"
  | "amount"
  | "integer"
  | "number"
  | "boolean"
  | "choice"
  | "object"
  | "map"
  | "list"
  | "texts"
  | "mixed";

/** kindOf tells how a value is entered. */
export function kindOf(s: Schema): Kind {
  const types = Array.isArray(s.type) ? s.type : [s.type ?? "string"];
  if (types.length > 1)
    return types.includes("object") || types.includes("array") || types.includes("boolean") ? "mixed" : "amount";
  switch (types[0]) {
    case "integer":
    case "number":
    case "boolean":
      return types[0];
    case "array":
      return s.items && !s.items.$ref && (s.items.type ?? "string") === "string" ? "texts" : "list";
    case "object":
      return s.properties ? "object" : "map";
  }
  return s.enum ? "choice" : "text";
}

/** labelOf makes words of a field's name: maxLatency is Max latency. */
export function labelOf(name: string): string {
  const words = name.replace(/([a-z0-9])([A-Z])/g, "$1 $2").replace(/([A-Z]+)([A-Z][a-z]{2,})/g, "$1 $2");
  return words.charAt(0).toUpperCase() + words.slice(1).replace(/ [A-Z](?=[a-z])/g, (m) => m.toLowerCase());
}

/** blank is what a value that is added begins with. */
export function blank(root: Schema, s: Schema): unknown {
  const r = resolve(root, s);
  switch (kindOf(r)) {
    case "object": {
      const out: Record<string, unknown> = {};
      for (const k of r.required ?? []) out[k] = blank(root, r.properties![k]!);
      return out;
    }
    case "map":
      return {};
    case "list":
    case "texts":
      return [];
    case "integer":
    case "number":
      return r.minimum && r.minimum > 0 ? r.minimum : 0;
    case "boolean":
      return true;
    case "choice":
      return r.enum![0];
  }
  return "";
}

export interface Group {
  title: string;
  fields: string[];
}

const order: Group[] = [
  {
    title: "What runs",
    fields: [
      "name",
      "mode",
      "image",
      "command",
      "args",
      "env",
      "envFields",
      "envSecrets",
      "runtime",
      "runtimeClass",
      "isolation",
      "workingDir",
      "user",
      "tty",
      "stopSignal",
      "terminationGrace",
      "postStart",
      "preStop",
      "hostname",
      "ulimits",
      "sysctls",
      "platforms",
      "wasm",
      "machine",
      "description",
      "labels",
    ],
  },
  {
    title: "How many, and for what load",
    fields: ["replicas", "scale", "expectedRate", "latencyObjective", "job", "cron", "startAfter"],
  },
  { title: "What it needs", fields: ["resources", "devices"] },
  { title: "Where it runs", fields: ["placement", "migration", "onDisconnect", "onReconnect"] },
  {
    title: "Network",
    fields: ["ports", "aliases", "links", "ingress", "export", "egress", "addresses", "extraHosts", "metrics"],
  },
  { title: "Data", fields: ["volumes", "snapshots", "mounts", "config", "secrets", "logs"] },
  { title: "Health and updates", fields: ["probes", "restart", "update"] },
  { title: "What runs beside it", fields: ["init", "sidecars"] },
  { title: "What it may do", fields: ["security"] },
];

/** editable lists the fields that a person may set: the server fills in those that are read-only. */
export function editable(s: Schema): string[] {
  return Object.keys(s.properties ?? {}).filter((k) => !s.properties![k]!.readOnly);
}

/** groups puts the editable fields of a service into groups; one that no group names is under More, so that none is left out. */
export function groups(service: Schema): Group[] {
  const all = new Set(editable(service));
  const out = order.map((g) => ({ title: g.title, fields: g.fields.filter((f) => all.delete(f)) }));
  if (all.size > 0) out.push({ title: "More", fields: [...all] });
  return out.filter((g) => g.fields.length > 0);
}
