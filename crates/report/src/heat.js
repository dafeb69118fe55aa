"use strict";
for (const canvas of document.querySelectorAll("canvas.heat")) {
  const data = JSON.parse(document.getElementById(canvas.dataset.source).textContent);
  const draw = canvas.getContext("2d"), right = 14, top = 26;
  // A margin of a bin and a column, so that what stands at the edge is seen.
  const whole = { x0: 0, x1: Math.max(data.columns, 8), y0: data.lowest - 2, y1: data.highest + 3 };
  let view = { ...whole }, left = 64, bottom = 40, wide = 0, high = 0;
  const highest = data.cells.reduce((most, cell) => Math.max(most, cell[2]), 1);
  const most = Math.log(highest), share = (count) => most > 0 ? Math.log(count) / most : 1;
  const colour = (share) => `hsl(${250 - 200 * share} 85% ${34 + 22 * share}%)`;
  const units = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
  const time = (ns) => {
    const [size, unit] = units.find(([size]) => Math.abs(ns) >= size * 0.9999) ?? units[3];
    return +(ns / size).toPrecision(4) + " " + unit;
  };
  const step = (span, parts) => {
    const rough = span / parts, power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((step) => step >= rough * 0.9999);
  };
  const paint = () => {
    const width = wide - left - right, height = high - bottom - top;
    const style = getComputedStyle(document.body), line = style.getPropertyValue("--line");
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
    const columnNs = data.column_s * 1e9, every = step((view.x1 - view.x0) * columnNs, Math.max(2, width / 130));
    for (let at = Math.ceil(view.x0 * columnNs / every) * every; at <= view.x1 * columnNs; at += every) {
      const column = at / columnNs;
      draw.textAlign = x(column) > wide - 40 ? "right" : "center";
      tick(at === 0 ? "0" : time(at), x(column), top, x(column), top + height, Math.min(x(column), wide - 2), top + height + 18);
    }
    draw.save();
    draw.beginPath();
    draw.rect(left, top, width, height);
    draw.clip();
    for (const [column, bin, count] of data.cells) {
      if (column + 1 < view.x0 || column > view.x1 || bin + 1 < view.y0 || bin > view.y1) continue;
      draw.fillStyle = colour(share(count));
      draw.fillRect(x(column), y(bin + 1), Math.max(sx, 2), Math.max(sy - 0.5, 2));
    }
    draw.restore();
    // What the colours stand for.
    const bar = Math.min(120, width / 3), from = wide - right - bar - 40;
    for (let at = 0; at < bar; at++) {
      draw.fillStyle = colour(at / bar);
      draw.fillRect(from + at, 6, 1.5, 10);
    }
    draw.fillStyle = style.color;
    draw.textAlign = "right";
    draw.fillText("1", from - 5, 16);
    draw.textAlign = "left";
    draw.fillText(highest, from + bar + 5, 16);
    draw.fillText("interval", 2, 16);
    draw.textAlign = "center";
    draw.fillText("time from the first packet", left + width / 2, high - 4);
    canvas.dataset.painted = data.cells.length;
  };
  // As many points as the screen has, so that text is as large as elsewhere on the page.
  const fit = () => {
    const ratio = window.devicePixelRatio || 1;
    wide = canvas.clientWidth || 800;
    high = Math.min(420, Math.max(260, wide * 0.5));
    left = wide < 600 ? 52 : 64;
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
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const [x, y] = place(event), factor = event.deltaY > 0 ? 1.25 : 0.8;
    const zoom = (low, high, share, least, most) => {
      const span = Math.min(Math.max((high - low) * factor, 4), most - least);
      const from = Math.min(Math.max(low + (high - low) * share - span * share, least), most - span);
      return [from, from + span];
    };
    [view.x0, view.x1] = zoom(view.x0, view.x1, x, whole.x0, whole.x1);
    if (!event.shiftKey) [view.y0, view.y1] = zoom(view.y0, view.y1, y, whole.y0, whole.y1);
    paint();
  }, { passive: false });
  let held = null;
  canvas.addEventListener("pointerdown", (event) => { held = [place(event), { ...view }]; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", () => { held = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (!held) return;
    const [x, y] = place(event), [[fromX, fromY], old] = held;
    const dx = Math.min(Math.max((fromX - x) * (old.x1 - old.x0), whole.x0 - old.x0), whole.x1 - old.x1);
    const dy = Math.min(Math.max((fromY - y) * (old.y1 - old.y0), whole.y0 - old.y0), whole.y1 - old.y1);
    view = { x0: old.x0 + dx, x1: old.x1 + dx, y0: old.y0 + dy, y1: old.y1 + dy };
    paint();
  });
  canvas.addEventListener("dblclick", () => { view = { ...whole }; paint(); });
  window.addEventListener("resize", fit);
  fit();
}
