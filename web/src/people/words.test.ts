import { describe, expect, it } from "vitest";
import { certificateState, encode, grantWords, joinCommand, joinRoles, scopeWords, until } from "./words";

describe("the words of people and access", () => {
  it("tells grants", () => {
    expect(grantWords({ role: "admin", org: "*", cluster: "*" })).toBe("admin of every organisation, everywhere");
    expect(grantWords({ role: "developer", org: "acme", cluster: "harbour" })).toBe(
      "developer of organisation acme, at cluster harbour",
    );
  });
  it("keeps a scope that it does not know", () => {
    expect(scopeWords("apps:logs")).toBe("Read logs");
    expect(scopeWords("moon:land")).toBe("moon:land");
  });
  it("gives the command for each role", () => {
    expect(joinRoles("root")).toEqual(["cluster"]);
    expect(joinRoles("cluster")).toEqual(["worker", "successor"]);
    expect(joinCommand("cluster", "r.example", "T", "harbour")).toBe(
      "skerry cluster --name harbour --root r.example --join T",
    );
    expect(joinCommand("worker", "c.example", "T")).toBe("skerry worker --cluster c.example --join T");
    expect(joinCommand("successor", "c.example", "T", "second")).toBe(
      "skerry cluster --succeed c.example --join T --root ROOT",
    );
  });
  it("tells what is left of a life", () => {
    const now = Date.parse("2026-01-01T00:00:00Z");
    expect(until(undefined, now)).toBe("until it is deleted");
    expect(until("2025-12-31T23:59:59Z", now)).toBe("over");
    expect(until("2026-01-01T00:00:10Z", now)).toBe("1 min more");
    expect(until("2026-01-02T00:00:00Z", now)).toBe("24 h more");
    expect(until("2026-01-31T00:00:00Z", now)).toBe("30 d more");
  });
  it("warns of certificates before they end", () => {
    const now = Date.parse("2026-01-10T00:00:00Z");
    expect(certificateState("2026-01-11T00:00:00Z", "2026-09-01T00:00:00Z", now).text).toBe("not valid yet");
    expect(certificateState("2026-01-01T00:00:00Z", "2026-09-01T00:00:00Z", now).text).toBe("valid");
    expect(certificateState("2026-01-01T00:00:00Z", "2026-01-20T00:00:00Z", now).text).toBe("ends in 10 d");
    expect(certificateState("2026-01-01T00:00:00Z", "2026-01-10T00:00:00Z", now).text).toBe("expired");
  });
  it("encodes text of any alphabet", () => {
    expect(encode("hø")).toBe("aMO4");
  });
});
