"use strict";
const dark = matchMedia("(prefers-color-scheme: dark)");
for (const canvas of document.querySelectorAll("canvas.heat")) {
  const data = JSON.parse(document.getElementById(canvas.dataset.source).textContent);
  const draw = canvas.getContext("2d"), right = 14, top = 28;
  // Column, bin and count of each cell, in the order of columns.
  const cells = [];
  for (let at = 0, column = 0; at < data.cells.length; at += 3) {
    column += data.cells[at];
    cells.push([column, data.cells[at + 1], data.cells[at + 2]]);
  }
  // A margin of a bin and a column, so that the edge is visible.
  const whole = { x0: 0, x1: Math.max(data.columns, 8), y0: data.lowest - 2, y1: data.highest + 3 };
  let view = { ...whole }, left = 64, bottom = 42, wide = 0, high = 0, shown = new Map(), group = 1;
  // Few on the page's ground, many far from it.
  const colour = (share) => dark.matches
    ? `hsl(${255 - 205 * share} ${55 + 40 * share}% ${42 + 28 * share}%)`
    : `hsl(${200 + 130 * share} ${75 - 5 * share}% ${80 - 54 * share}%)`;
  const units = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
  const time = (ns, digits = 4) => {
    const [size, unit] = units.find(([size]) => Math.abs(ns) >= size * 0.9999) ?? units[3];
    return +(ns / size).toPrecision(digits) + " " + unit;
  };
  const step = (span, parts) => {
    const rough = span / parts, power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((step) => step >= rough * 0.9999);
  };
  // The first cell of a column, or behind it.
  const find = (column) => {
    let low = 0, end = cells.length;
    while (low < end) {
      const middle = (low + end) >> 1;
      if (cells[middle][0] < column) low = middle + 1; else end = middle;
    }
    return low;
  };
  // As many columns are summed up as fall on one point of the screen.
  const gather = (width) => {
    group = Math.max(1, Math.floor((view.x1 - view.x0) / width));
    shown = new Map();
    let most = 1;
    for (let at = find(Math.floor(view.x0 / group) * group); at < cells.length && cells[at][0] < view.x1; at++) {
      const [column, bin, count] = cells[at];
      if (bin + 1 < view.y0 || bin > view.y1) continue;
      const key = Math.floor(column / group) * 256 + bin, sum = (shown.get(key) ?? 0) + count;
      shown.set(key, sum);
      most = Math.max(most, sum);
    }
    return most;
  };
  const paint = () => {
    const width = wide - left - right, height = high - bottom - top;
    const highest = gather(width), most = Math.log(highest), share = (count) => most > 0 ? Math.log(count) / most : 1;
    const style = getComputedStyle(document.body), line = style.getPropertyValue("--line"), quiet = style.getPropertyValue("--quiet");
    const sx = width / (view.x1 - view.x0), sy = height / (view.y1 - view.y0);
    const x = (column) => left + (column - view.x0) * sx, y = (bin) => top + height - (bin - view.y0) * sy;
    draw.clearRect(0, 0, wide, high);
    draw.font = "13px system-ui, sans-serif";
    draw.lineWidth = 1;
    const tick = (text, fromX, fromY, toX, toY, textX, textY) => {
      draw.strokeStyle = line;
      draw.beginPath();
      draw.moveTo(fromX, fromY);
      draw.lineTo(toX, toY);
      draw.stroke();
      draw.fillStyle = style.color;
      draw.fillText(text, textX, textY);
    };
    draw.save();
    draw.beginPath();
    draw.rect(left, top, width, height);
    draw.clip();
    draw.fillStyle = style.getPropertyValue("--gap");
    for (const [from, to] of data.gaps) draw.fillRect(x(from), top, Math.max((to - from) * sx, 1.5), height);
    draw.restore();
    // Powers of ten; of a narrow view 1, 2 and 5 of each.
    const decades = (view.y1 - view.y0) / 4 * Math.log10(2);
    for (let power = -1; power < 13; power++) {
      for (const factor of decades > 2.5 ? [1] : [1, 2, 5]) {
        const ns = factor * 10 ** power, bin = 4 * Math.log2(ns);
        if (bin < view.y0 || bin > view.y1) continue;
        draw.textAlign = "right";
        tick(time(ns), left, y(bin), left + width, y(bin), left - 6, y(bin) + 4);
      }
    }
    const columnNs = data.column_s * 1e9, every = step((view.x1 - view.x0) * columnNs, Math.max(3, width / 110));
    for (let number = Math.ceil(view.x0 * columnNs / every); number * every <= view.x1 * columnNs; number++) {
      const at = number * every, column = at / columnNs;
      draw.textAlign = x(column) > wide - 40 ? "right" : "center";
      tick(at === 0 ? "0" : time(at, 6), x(column), top, x(column), top + height, Math.min(x(column), wide - 2), top + height + 18);
    }
    draw.save();
    draw.beginPath();
    draw.rect(left, top, width, height);
    draw.clip();
    for (const [key, count] of shown) {
      const column = Math.floor(key / 256) * group, bin = key % 256;
      draw.fillStyle = colour(share(count));
      // Whole points of the screen: between edges within one, the ground would show.
      const from = Math.floor(x(column)), to = Math.floor(x(column + group));
      draw.fillRect(from, y(bin + 1), Math.max(to - from, 2), Math.max(sy - 0.5, 2));
    }
    draw.restore();
    // What the colours stand for.
    const bar = Math.min(120, width / 4), text = String(highest), from = wide - right - bar - 8 - draw.measureText(text).width;
    for (let at = 0; at < bar; at++) {
      draw.fillStyle = colour(at / bar);
      draw.fillRect(from + at, 8, 1.5, 10);
    }
    draw.fillStyle = style.color;
    draw.textAlign = "right";
    draw.fillText(width > 420 ? "how many: 1" : "1", from - 5, 18);
    draw.textAlign = "left";
    draw.fillText(text, from + bar + 5, 18);
    draw.fillText("interval", 2, 18);
    if (data.gaps.length > 0) {
      draw.fillStyle = style.getPropertyValue("--gap");
      draw.fillRect(left + 20, 8, 16, 10);
      draw.fillStyle = quiet;
      draw.fillText("not captured", left + 41, 18);
    }
    draw.fillStyle = style.color;
    draw.textAlign = "center";
    draw.fillText("time from the first packet", left + width / 2, high - 5);
    canvas.dataset.painted = shown.size;
    canvas.dataset.view = [view.x0, view.x1, view.y0, view.y1].map((edge) => edge.toFixed(2)).join(" ");
  };
  // What is under the pointer.
  const tell = (event) => {
    const [shareX, shareY] = place(event);
    const column = Math.floor((view.x0 + shareX * (view.x1 - view.x0)) / group) * group;
    const bin = Math.floor(view.y0 + shareY * (view.y1 - view.y0));
    const count = shown.get(column / group * 256 + bin) ?? 0;
    const ns = (at) => time(2 ** (at / 4), 3), at = (column) => time(column * data.column_s * 1e9, 6);
    canvas.title = `${count} of ${ns(bin)} to ${ns(bin + 1)}, from ${at(column)} to ${at(column + group)}`;
  };
  // As many points as the screen has, so that text is as large as elsewhere on the page.
  const fit = () => {
    const ratio = window.devicePixelRatio || 1;
    wide = canvas.clientWidth || 800;
    high = Math.min(420, Math.max(260, wide * 0.5));
    left = wide < 600 ? 56 : 64;
    canvas.style.height = high + "px";
    [canvas.width, canvas.height] = [Math.round(wide * ratio), Math.round(high * ratio)];
    draw.setTransform(ratio, 0, 0, ratio, 0, 0);
    paint();
  };
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    const x = (event.clientX - box.left - left) / (wide - left - right);
    const y = 1 - (event.clientY - box.top - top) / (high - bottom - top);
    return [Math.min(1, Math.max(0, x)), Math.min(1, Math.max(0, y))];
  };
  const zoom = (factor, [x, y], timeAlone) => {
    const edges = (low, high, share, least, most) => {
      const span = Math.min(Math.max((high - low) * factor, 4), most - least);
      const from = Math.min(Math.max(low + (high - low) * share - span * share, least), most - span);
      return [from, from + span];
    };
    [view.x0, view.x1] = edges(view.x0, view.x1, x, whole.x0, whole.x1);
    if (!timeAlone) [view.y0, view.y1] = edges(view.y0, view.y1, y, whole.y0, whole.y1);
    paint();
  };
  const all = () => { view = { ...whole }; paint(); };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    // With Shift some browsers turn the wheel sideways.
    zoom((event.deltaY || event.deltaX) > 0 ? 1.25 : 0.8, place(event), event.shiftKey);
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "+") zoom(0.8, [0.5, 0.5], false);
    else if (event.key === "-") zoom(1.25, [0.5, 0.5], false);
    else if (event.key === "0") all();
  });
  let held = null;
  canvas.addEventListener("pointerdown", (event) => { held = [place(event), { ...view }]; canvas.setPointerCapture(event.pointerId); });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { held = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (!held) return tell(event);
    const [x, y] = place(event), [[fromX, fromY], old] = held;
    const dx = Math.min(Math.max((fromX - x) * (old.x1 - old.x0), whole.x0 - old.x0), whole.x1 - old.x1);
    const dy = Math.min(Math.max((fromY - y) * (old.y1 - old.y0), whole.y0 - old.y0), whole.y1 - old.y1);
    view = { x0: old.x0 + dx, x1: old.x1 + dx, y0: old.y0 + dy, y1: old.y1 + dy };
    paint();
  });
  canvas.addEventListener("dblclick", all);
  window.addEventListener("resize", fit);
  dark.addEventListener("change", paint);
  fit();
}
