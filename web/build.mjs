// Bundles src/ into dist/: charts.js.gz and stills.js.gz, which the crate `longhaul-report` embeds, each with its hash for the pages' security policy,
// and mesh.js.gz, which `longhaul-mesh` serves.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

// The notices of what is bundled go with it, into each page.
const licence = (file) => readFileSync(`node_modules/${file}`, "utf8").trim();
const notice = `/*! Figures by Apache ECharts ${version("echarts")} (https://echarts.apache.org), Apache License 2.0, and zrender ${version("zrender")}.
Copyright 2017-2026 The Apache Software Foundation. This product includes software developed at The Apache Software Foundation (https://www.apache.org/).
The licence is LICENSE-APACHE of longhaul, or https://www.apache.org/licenses/LICENSE-2.0.
zrender:
${licence("zrender/LICENSE")}
Of d3.js, in ECharts:
${licence("echarts/licenses/LICENSE-d3")}
*/`;
function version(name) {
    return JSON.parse(readFileSync(`node_modules/${name}/package.json`, "utf8")).version;
}
// Each with the notice of what is in it, and the characters that it may have: a page has it whole, and is to have less than 2 MB.
const bundles = [
    ["charts", "src/charts.ts", notice, 600_000],
    ["stills", "src/stills.ts", "", 12_000],
    ["mesh", "src/mesh/main.ts", notice, Infinity],
];
mkdirSync("dist", { recursive: true });
for (const [name, entry, notice, most] of bundles) {
    const result = await build({
        entryPoints: [entry],
        bundle: true,
        minify: true,
        format: "iife",
        target: "es2020",
        charset: "utf8",
        legalComments: "none",
        define: { "process.env.NODE_ENV": '"production"', __DEV__: "false" },
        banner: { js: notice },
        write: false,
        metafile: process.argv.includes("--sizes"),
    });
    // Within a page nothing of the script may end its element.
    const script = result.outputFiles[0].text.replaceAll("</script", "<\\/script").replaceAll("<!--", "<\\!--");
    if (script.length > most) throw new Error(`${name} has ${script.length} characters, ${most} at most`);
    writeFileSync(`dist/${name}.js.gz`, gzipSync(script, { level: 9 }));
    writeFileSync(`dist/${name}.sha256`, createHash("sha256").update(script).digest("base64"));
    console.log(`web: ${name}: ${script.length} characters, of them ${notice.length} of licences`);
}
writeFileSync("dist/NOTICE", notice.replace(/^\/\*! |\*\/$/gm, ""));
