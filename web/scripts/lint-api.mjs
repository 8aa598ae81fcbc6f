// Lints the API's document with the rules of Redocly (redocly.yaml), by the library of its command, which openapi-typescript needs anyway.
import { formatProblems, getTotals, lint, loadConfig } from "@redocly/openapi-core";

const problems = await lint({
  ref: "../docs/openapi.json",
  config: await loadConfig({ configPath: "redocly.yaml" }),
});
const { errors, warnings } = getTotals(problems);
if (errors + warnings > 0) {
  formatProblems(problems, { format: "stylish", totals: { errors, warnings, ignored: 0 } });
  process.exit(1);
}
