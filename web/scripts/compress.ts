import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import type { Plugin } from "vite";

/** compress keeps each file of the build as gzip alone, which is what the server sends; old builds are removed first. */
export function compress(): Plugin {
  let out = "dist";
  const each = (dir: string, fn: (file: string) => void) => {
    for (const name of readdirSync(dir)) {
      const path = join(dir, name);
      if (statSync(path).isDirectory()) each(path, fn);
      else if (name !== ".gitkeep") fn(path);
    }
  };
  return {
    name: "compress",
    apply: "build",
    configResolved(c) {
      out = c.build.outDir;
    },
    buildStart() {
      try {
        each(out, (f) => rmSync(f));
      } catch {
        // there was no build before
      }
    },
    closeBundle() {
      each(out, (f) => {
        writeFileSync(f + ".gz", gzipSync(readFileSync(f), { level: 9 }));
        rmSync(f);
      });
    },
  };
}
