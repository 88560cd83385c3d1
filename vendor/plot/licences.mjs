// Prints the licence of each package that a byte of the bundle is from.
import {readdirSync, readFileSync} from "node:fs";

const {outputs} = JSON.parse(readFileSync("node_modules/inputs.json", "utf8"));
const [output] = Object.values(outputs);
const used = Object.entries(output.inputs).filter(([, {bytesInOutput}]) => bytesInOutput > 0);
const names = used.map(([path]) => /^node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1]);

console.log("plot.min.js is made of these packages, each under its own licence.");
for (const name of [...new Set(names.filter(Boolean))].sort()) {
  const folder = `node_modules/${name}`;
  const {version, license} = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
  const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
  console.log(`\n${"-".repeat(72)}\n${name} ${version} (${license})\n`);
  console.log(readFileSync(`${folder}/${file}`, "utf8").trim());
}
