// Bundles src/ into dist/: charts.js.gz, which the crate `longhaul-report` embeds, with its hash for the pages' security policy, and mesh.js.gz, which
// `longhaul-mesh` serves.
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
mkdirSync("dist", { recursive: true });
for (const [name, entry] of [["charts", "src/charts.ts"], ["mesh", "src/mesh/main.ts"]]) {
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
    writeFileSync(`dist/${name}.js.gz`, gzipSync(script, { level: 9 }));
    writeFileSync(`dist/${name}.sha256`, createHash("sha256").update(script).digest("base64"));
    console.log(`web: ${name}: ${script.length} characters, of them ${notice.length} of licences`);
}
writeFileSync("dist/NOTICE", notice.replace(/^\/\*! |\*\/$/gm, ""));
