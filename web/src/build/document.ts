import {
  type Document,
  isCollection,
  isMap,
  isScalar,
  isSeq,
  type Node,
  parseDocument,
  type ScalarTag,
  stringify,
  type Tags,
} from "yaml";
import type { FieldProblem } from "../api/types";

/** Path leads to a value of a manifest. */
export type Path = (string | number)[];

/** pathText writes a path as the server names it: spec.services[0].image. */
export function pathText(p: Path): string {
  return p.map((k, i) => (typeof k === "number" ? `[${k}]` : (i ? "." : "") + k)).join("");
}

/** parsePath reads what pathText writes. */
export function parsePath(text: string): Path {
  const out: Path = [];
  for (const m of text.matchAll(/([^.[\]]+)|\[(\d+)\]/g)) out.push(m[2] !== undefined ? Number(m[2]) : m[1]!);
  return out;
}

export interface Mark {
  from: number;
  to: number;
  severity: "error" | "warning";
  message: string;
}

/** The server reads YAML 1.1, in which off is false: what is written here means the same there. */
export const yamlVersion = { version: "1.1" } as const;

/** asWritten writes a text in a block, below | or >, as it was read: its lines are not folded anew. */
function asWritten(tags: Tags): Tags {
  return tags.map((tag) => {
    if (typeof tag === "string" || tag.tag !== "tag:yaml.org,2002:str" || tag.collection) return tag;
    const text = tag as ScalarTag;
    const stringify: ScalarTag["stringify"] = (item, context, onComment, onChompKeep) => {
      const source = item.type?.startsWith("BLOCK_") ? item.srcToken : undefined;
      const header = source?.type === "block-scalar" && source.props.find((p) => p.type === "block-scalar-header");
      const first = header && source.source.match(/^(?: *\n)*( *)[^ \n]/);
      // With its indent in the header, or CRLF, it means something else elsewhere; and what is empty has no indent.
      if (!header || !("source" in header) || !first || /\d/.test(header.source) || source.source.includes("\r"))
        return text.stringify!(item, context, onComment, onChompKeep);
      if (item.comment) onComment?.();
      if (header.source.includes("+")) onChompKeep?.();
      const lines = source.source.replace(/\n$/, "").split("\n");
      const rest = lines.map((line) => line.slice(first[1]!.length));
      const body = rest.map((line) => (line ? context.indent : "") + line);
      return [header.source + (item.comment ? ` #${item.comment}` : ""), ...body].join("\n");
    };
    return { ...text, stringify };
  });
}

const reading = { ...yamlVersion, keepSourceTokens: true, customTags: asWritten } as const;

/** yamlText writes a value as YAML. Texts of several lines stand below |, as they are written by hand. */
export const yamlText = (value: unknown) =>
  stringify(value, { ...yamlVersion, lineWidth: 0, blockQuote: "literal", indentSeq: false });

/** empties are parts of a service that say nothing when they are empty; the server sends them all the same. */
const empties = new Set(["security", "resources", "placement", "probes", "restart", "update", "logs"]);

/** manifestText writes a manifest that the server sends as a person would. */
export const manifestText = (manifest: unknown) =>
  yamlText(
    JSON.parse(
      JSON.stringify(manifest ?? null, (key, value: unknown) =>
        empties.has(key) && value !== null && typeof value === "object" && Object.keys(value).length === 0
          ? undefined
          : value,
      ),
    ),
  );

export interface LinkModel {
  service: string;
  maxLatency?: string;
  maxDistance?: number;
}

/** ServiceModel is of a service what the graph shows. The form goes by the schema. */
export interface ServiceModel {
  name?: string;
  image?: string;
  runtime?: string;
  mode?: string;
  replicas?: number;
  links?: LinkModel[];
  [field: string]: unknown;
}

export interface Model {
  metadata?: { name?: string; namespace?: string; labels?: Record<string, string> };
  spec?: { services?: ServiceModel[] };
  [field: string]: unknown;
}

/**
 * Manifest is the text of an application's manifest. Text, form and graph are three ways to write one document: a change
 * of a field changes that field's text, and comments and order stay.
 */
export class Manifest {
  readonly doc: Document;
  readonly model: Model;
  /** broken tells why the text cannot be read as YAML; the form then waits. */
  readonly broken?: Mark;

  constructor(readonly text: string) {
    this.doc = parseDocument(text, reading);
    const e = this.doc.errors[0];
    if (e) {
      this.broken = {
        from: e.pos[0],
        to: Math.max(e.pos[1], e.pos[0] + 1),
        severity: "error",
        message: e.message.split("\n")[0]!,
      };
      this.model = {};
    } else {
      const m: unknown = this.doc.toJS();
      if (m !== null && typeof m === "object" && !Array.isArray(m)) this.model = m as Model;
      else {
        this.model = {};
        if (text.trim())
          this.broken = {
            from: 0,
            to: text.length,
            severity: "error",
            message: "a manifest has fields, such as apiVersion",
          };
      }
    }
  }

  get services(): ServiceModel[] {
    const s = this.model.spec?.services;
    return Array.isArray(s) ? s.filter((x) => x !== null && typeof x === "object") : [];
  }

  /** set gives the manifest with another value at a path; undefined takes the value out. */
  set(path: Path, value: unknown): Manifest {
    const doc: Document = parseDocument(this.text, reading);
    if (value === undefined) doc.deleteIn(path);
    else {
      if (!isCollection(doc.contents)) doc.contents = doc.createNode({}) as Node;
      // An empty value on the way, as in "resources:", becomes what the path needs; one that is shared by an alias a copy of its own.
      let now: unknown = this.model;
      for (let n = 1; n < path.length; n++) {
        const at = path.slice(0, n);
        now =
          now !== null && typeof now === "object" ? (now as Record<string | number, unknown>)[path[n - 1]!] : undefined;
        if (!isCollection(doc.getIn(at, true)))
          doc.setIn(
            at,
            doc.createNode(now !== null && typeof now === "object" ? now : typeof path[n] === "number" ? [] : {}),
          );
      }
      const old = doc.getIn(path, true);
      if (isScalar(old) && (value === null || typeof value !== "object")) {
        old.value = value;
        old.type = undefined; // quotes where the new value needs them
      } else doc.setIn(path, doc.createNode(value));
    }
    // Lists stay as they were written: below their field's name or further in.
    return new Manifest(
      doc.toString({
        lineWidth: 0,
        flowCollectionPadding: !/[:,-] *[{[][^\s{}[\]]/.test(this.text),
        indentSeq: !/^( *)[^\s#-].*:[ \t]*(?:#.*)?\n\1- /m.test(this.text),
      }),
    );
  }

  /** addService adds a service with a name of its own. */
  addService(): Manifest {
    const names = new Set(this.services.map((s) => s.name));
    let name = "service";
    for (let n = 2; names.has(name); n++) name = "service" + n;
    return this.set(["spec", "services", this.services.length], { name, image: "" });
  }

  /** removeService removes a service with the links to it. */
  removeService(index: number): Manifest {
    const name = this.services[index]?.name;
    let m: Manifest = this.set(["spec", "services", index], undefined);
    m.services.forEach((s, i) => {
      const links = s.links ?? [];
      for (let n = links.length - 1; n >= 0; n--) if (links[n]?.service === name) m = m.unlink(i, n);
    });
    return m;
  }

  /** rename names a service anew, with the links to it. */
  rename(index: number, name: string): Manifest {
    const old = this.services[index]?.name;
    let m: Manifest = this.set(["spec", "services", index, "name"], name);
    if (!old) return m;
    for (const [i, s] of m.services.entries()) {
      for (const [n, l] of (s.links ?? []).entries()) {
        if (l?.service === old) m = m.set(["spec", "services", i, "links", n, "service"], name);
      }
    }
    return m;
  }

  /** link says that one service talks to another; once is enough. */
  link(from: number, to: string): Manifest {
    const links = this.services[from]?.links ?? [];
    if (links.some((l) => l.service === to) || this.services[from]?.name === to) return this;
    return this.set(["spec", "services", from, "links", links.length], { service: to });
  }

  /** unlink takes a link out, and the list with the last of them. */
  unlink(from: number, n: number): Manifest {
    const links = this.services[from]?.links ?? [];
    return links.length <= 1
      ? this.set(["spec", "services", from, "links"], undefined)
      : this.set(["spec", "services", from, "links", n], undefined);
  }

  /** marks says where in the text problems are; what the text does not have is marked at what would hold it. */
  marks(problems: FieldProblem[]): Mark[] {
    if (this.broken) return [this.broken];
    return problems.map((p) => {
      const path = parsePath(p.path);
      let node: Node | null = this.doc.contents;
      let range = node?.range ?? [0, Math.min(1, this.text.length), 0];
      for (const k of path) {
        let next: unknown;
        if (isMap(node)) {
          const pair = node.items.find((i) => isScalar(i.key) && i.key.value === k);
          if (!pair) break;
          if (isScalar(pair.key) && pair.key.range) range = pair.key.range;
          next = pair.value;
        } else if (isSeq(node)) next = node.items[k as number];
        if (!next) break;
        node = next as Node;
        if (isScalar(node) && node.range) range = node.range;
        else if (
          typeof k === "number" &&
          isMap(node) &&
          node.items[0] &&
          isScalar(node.items[0].key) &&
          node.items[0].key.range
        )
          range = node.items[0].key.range;
      }
      return {
        from: range[0],
        to: Math.max(range[1], range[0] + 1),
        severity: "error" as const,
        message: p.message + (p.hint ? ` (${p.hint})` : ""),
      };
    });
  }
}

/** fresh is what a new application begins with. */
export const fresh = `apiVersion: skerry/v1
kind: Application
metadata:
  name: my-app
spec:
  services:
    - name: web
      image: ""
      resources:
        cpu: 100m
        memory: 64Mi
`;
