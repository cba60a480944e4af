// Sorting by a click on a head, and the values of a chart under the pointer. The page is complete without it.
document.querySelectorAll('table.sort th').forEach(th => th.onclick = () => {
  const column = th.cellIndex, body = th.closest('table').tBodies[0], falls = th.ariaSort === 'descending';
  const value = row => { const text = row.cells[column].dataset.v ?? row.cells[column].textContent; return text === '' || isNaN(text) ? text : +text; };
  const order = (a, b) => (typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === 'number' ? 1 : -1) * (falls ? 1 : -1);
  [...body.rows].sort((a, b) => order(value(a), value(b))).forEach(row => body.append(row));
  th.parentNode.querySelectorAll('th').forEach(other => other.removeAttribute('aria-sort'));
  th.ariaSort = falls ? 'ascending' : 'descending';
});
const tip = document.getElementById('tip');
const number = v => Number(v.toPrecision(4)).toLocaleString('en', {maximumSignificantDigits: 4});
// Charts: the axis of steps may be one of epochs, samples or seconds, and the pointer names values.
const nav = document.querySelector('.axes'), runs = JSON.parse(nav?.dataset.runs ?? '[]');
const behind = (list, s) => { const i = list.findIndex(p => p[0] >= s); return i < 0 ? list.length - 1 : i; };
const seconds = (s, r) => { const i = behind(r.at, s), [s1, t1] = r.at[i] ?? [1, 0], [s0, t0] = r.at[i - 1] ?? [0, 0];
  return Math.min(t1, t0 + (s - s0) / (s1 - s0 || 1) * (t1 - t0)); };
const scales = {step: s => s, epoch: (s, r) => s * r.epoch, samples: (s, r) => s * r.samples, time: seconds};
const charts = [...document.querySelectorAll('svg[data-axes]')].map(svg => {
  const [left, right, top, bottom, x0, x1, y0, y1] = svg.dataset.axes.split(' ').map(Number);
  const points = e => e.matches('circle') ? [[+e.getAttribute('cx')]] : e.matches('line') ? [[+e.getAttribute('x1')]] :
    e.getAttribute('points').trim().split(' ').map(p => p.split(',').map(Number));
  const shapes = [...svg.querySelectorAll('polyline, polygon, circle, .mark')].map(e => ({e, run: e.closest('[data-run]')?.dataset.run ?? 0, points: points(e)}));
  return {svg, left, right, top, bottom, x0, x1, y0, y1, shapes, name: svg.dataset.x, cursor: svg.querySelector('.cursor'),
    place: x => x, step: p => x0 + (p - left) / (right - left) * (x1 - x0)};
});
const text = (x, y, anchor, content) => { const e = document.createElementNS(charts[0].svg.namespaceURI, 'text');
  e.setAttribute('x', x); e.setAttribute('y', y); e.setAttribute('text-anchor', anchor); e.textContent = content; return e; };
function show(axis) {
  const scale = scales[axis], most = Math.max(...runs.map(r => scale(r.last, r)));
  const [by, unit] = axis !== 'time' ? [1, ''] : most < 120 ? [1, ', s'] : most < 7200 ? [60, ', min'] : [3600, ', h'];
  nav.querySelectorAll('button').forEach(b => b.ariaPressed = b.textContent === axis);
  charts.filter(c => c.svg.dataset.x === 'step').forEach(c => {
    c.place = (p, run) => c.left + scale(c.step(p), runs[run]) / most * (c.right - c.left);
    Object.assign(c, {x0: 0, x1: most / by, name: axis});
    c.shapes.forEach(({e, run, points}) => { const x = points.map(p => c.place(p[0], run).toFixed(1));
      if (e.matches('circle')) e.setAttribute('cx', x[0]);
      else if (e.matches('line')) ['x1', 'x2'].forEach(name => e.setAttribute(name, x[0]));
      else e.setAttribute('points', points.map((p, i) => x[i] + ',' + p[1]).join(' ')); });
    const power = 10 ** Math.floor(Math.log10(c.x1 / 5)), f = c.x1 / 5 / power, tick = power * (f < 1.5 ? 1 : f < 3.5 ? 2 : f < 7.5 ? 5 : 10);
    const labels = []; for (let v = 0; v <= c.x1 * (1 + 1e-9); v += tick) labels.push(text(c.left + v / c.x1 * (c.right - c.left), c.bottom + 19,
      v > .96 * c.x1 ? 'end' : v === 0 ? 'start' : 'middle', number(v)));
    c.svg.querySelector('.x').replaceChildren(...labels, text((c.left + c.right) / 2, c.bottom + 35, 'middle', axis + unit));
  });
}
if (runs.length && runs[0].last > 0) { nav.hidden = false; nav.querySelectorAll('button').forEach(b => b.onclick = () => show(b.textContent)); }
charts.forEach(c => {
  c.svg.onpointermove = event => {
    const box = c.svg.getBoundingClientRect(), x = (event.clientX - box.left) * c.svg.viewBox.baseVal.width / box.width;
    const curves = c.shapes.filter(s => s.e.dataset.label).reverse().map(({e, run, points}) => {
      const n = points.length / 2, all = e.dataset.low ? points.slice(0, n).map((p, i) => [p[0], c.bottom - (points[2 * n - 1 - i][1] - p[1])]) : points;
      return [e.dataset.label, all.map(p => [c.place(p[0], run), p[1]]).reduce((a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a)]; });
    if (!curves.length) return;
    const at = curves.map(k => k[1][0]).reduce((a, b) => Math.abs(b - x) < Math.abs(a - x) ? b : a);
    charts.filter(o => o === c || o.name === c.name && o.svg.dataset.x === 'step').forEach(o => { // charts of steps share their axis
      o.cursor.setAttribute('x1', at); o.cursor.setAttribute('x2', at); o.cursor.style.visibility = 'visible'; });
    tip.textContent = c.name + ' ' + number(c.x0 + (at - c.left) / (c.right - c.left) * (c.x1 - c.x0)) +
      curves.map(([label, p]) => '\n' + label + '  ' + number(c.y0 + (c.bottom - p[1]) / (c.bottom - c.top) * (c.y1 - c.y0))).join('');
    tip.style.visibility = 'visible';
    tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + 'px';
    tip.style.top = Math.max(8, event.clientY - tip.offsetHeight - 10) + 'px';
  };
  c.svg.onpointerleave = () => { tip.style.visibility = 'hidden'; charts.forEach(o => o.cursor.style.visibility = 'hidden'); };
});
