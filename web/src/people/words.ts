import type { Grant } from "../api/types";

/** grantWords tells a grant as one would say it. */
export function grantWords(g: Grant): string {
  const org = g.org === "*" ? "every organisation" : `organisation ${g.org}`;
  const cluster = g.cluster === "*" ? "everywhere" : `at cluster ${g.cluster}`;
  return `${g.role} of ${org}, ${cluster}`;
}

const words: Record<string, string> = {
  "apps:read": "See applications and instances",
  "apps:write": "Deploy, change and delete applications",
  "apps:logs": "Read logs",
  "apps:exec": "Run commands in instances",
  "apps:forward": "Forward ports of instances",
  "secrets:write": "Put and delete secrets",
  "images:read": "Pull images",
  "images:push": "Push images",
  "events:read": "See events",
  "orgs:read": "See organisations, quotas and namespaces",
  "orgs:admin": "Manage organisations, quotas and namespaces",
  "users:admin": "Manage users",
  "tokens:admin": "Create and delete join tokens",
  "members:admin": "Manage members: revoke and release",
  "clusters:read": "See clusters",
  "clusters:admin": "Remove clusters, trust them again",
  "workers:read": "See workers",
  "workers:write": "Drain, cordon, upgrade and remove workers",
  "metrics:read": "Read metrics",
  "audit:read": "Read the audit log",
};

/** scopeWords tells what a scope allows; one that this page does not know by its own name. */
export function scopeWords(scope: string): string {
  return words[scope] ?? scope;
}

export type JoinRole = "cluster" | "worker" | "successor";

/** joinRoles are those that a server of a tier gives tokens to. */
export function joinRoles(tier: string | undefined): JoinRole[] {
  return tier === "root" ? ["cluster"] : ["worker", "successor"];
}

/** joinCommand gives the command that joins with a token; without a name the machine's own is taken. */
export function joinCommand(role: string, host: string, token: string, name = ""): string {
  const named = name ? ` --name ${name}` : "";
  switch (role) {
    case "cluster":
      return `skerry cluster${named} --root ${host} --join ${token}`;
    case "successor":
      return `skerry cluster --succeed ${host} --join ${token} --root ROOT`;
    default:
      return `skerry worker${named} --cluster ${host} --join ${token}`;
  }
}

/** lives are the lives that are offered for tokens, as the API takes them; nothing: until it is deleted. */
export const lives = [
  { value: "24h", label: "1 day" },
  { value: "720h", label: "30 days" },
  { value: "2160h", label: "90 days" },
  { value: "8760h", label: "1 year" },
  { value: "", label: "Until it is deleted" },
];

/** until tells how long something is good yet. */
export function until(at: string | undefined, now = Date.now()): string {
  if (!at) return "until it is deleted";
  const left = Date.parse(at) - now;
  if (!Number.isFinite(left)) return "–";
  if (left <= 0) return "over";
  const hours = left / 3_600_000;
  if (hours < 1) return `${Math.max(1, Math.round(left / 60_000))} min more`;
  return hours < 48 ? `${Math.round(hours)} h more` : `${Math.round(hours / 24)} d more`;
}

/** certificateState says whether a certificate needs somebody's care; it is renewed by whoever put it. */
export function certificateState(
  notBefore: string,
  notAfter: string,
  now = Date.now(),
): { text: string; colour: string } {
  if (now < Date.parse(notBefore)) return { text: "not valid yet", colour: "yellow" };
  const days = (Date.parse(notAfter) - now) / 86_400_000;
  if (days <= 0) return { text: "expired", colour: "red" };
  return days < 21 ? { text: `ends in ${Math.ceil(days)} d`, colour: "yellow" } : { text: "valid", colour: "teal" };
}

/** encode gives text as the API takes a secret's files, in base64. */
export function encode(text: string): string {
  return btoa(Array.from(new TextEncoder().encode(text), (b) => String.fromCharCode(b)).join(""));
}
